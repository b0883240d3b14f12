-- Prints every like in the table as CSV, as of one moment.
COPY (
  SELECT post_id, user_id, (extract(epoch FROM created_at) * 1000)::bigint AS ts FROM post_likes
) TO STDOUT WITH (FORMAT csv, HEADER)
