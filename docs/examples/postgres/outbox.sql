-- Keeps every insert and delete of post_likes, in the transaction that makes it, until the relay has sent it. An UPDATE of a key and
-- TRUNCATE are not kept: do neither meanwhile.
-- The order of one user and post is the order of ids: a second transaction about the same row waits for the first.
CREATE TABLE likes_outbox (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  batch   bigint,                -- set by the relay
  post_id text   NOT NULL,
  user_id text   NOT NULL,
  action  text   NOT NULL,
  ts      bigint NOT NULL
);

CREATE FUNCTION likes_to_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN
    INSERT INTO likes_outbox (post_id, user_id, action, ts)
      VALUES (OLD.post_id, OLD.user_id, 'unlike', (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  ELSE
    INSERT INTO likes_outbox (post_id, user_id, action, ts)
      VALUES (NEW.post_id, NEW.user_id, 'like', (extract(epoch FROM NEW.created_at) * 1000)::bigint);
  END IF;
  RETURN NULL;
END $$;

-- Takes a lock that waits for the writers under way, so that no change is in neither the export nor the outbox.
CREATE TRIGGER likes_to_outbox AFTER INSERT OR DELETE ON post_likes FOR EACH ROW EXECUTE FUNCTION likes_to_outbox();
