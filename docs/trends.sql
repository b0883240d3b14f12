-- What is trending, for a site that runs RisingWave or Flink already: the greatest sums of a window, from the log of changes.
--
-- NOT RUN HERE: neither engine is among what this project is tried with, and versions differ in what they take. What is tried is the
-- filter, the sums and the list of part 1, as plain views over a table in PostgreSQL (docs/check trends-sql). Hold what you get against
-- tally-trends, or against the rows of two moments.
--
-- What these queries do not say, and tally-trends does: as of which second a list is complete, and whether it is exact. The log says both:
-- each section has "fed", the time up to which everything of its stream shard is in, and losses are announced ("losses", "lost"). A list
-- of these queries is right once all has come that will, and nothing in it says when.
--
-- The topic: messages {"v":3,"of":"<deployment>","read":<ms>,"sections":[..]}; others have another part in place of "sections", and no
-- changes. A section is an interval of one stream shard:
--   {"s":"<stream shard>","back":"<position>","to":"<position>","fed":<ms>,"e":[[..],[..]]}
-- "back" and "to" are where it begins and ends; "e" is left out where nothing changed. An entry of "e" is
--   0 subject, 1 counter, 2 shard, 3 row, 4 weight before, 5 weight after, 6 second, 7 position, 8 version of the row,
--   9 {"from":..,"to":..}: region before, after
-- 9 is left out where there is nothing to say, and may hold more. Without weights (null) an entry is a marker, or a row that cannot be read,
-- and counts nothing. A position has 40 digits, so that texts compare as numbers do. The counter of a sum begins with +.
--
-- The reader's filter: a change counts if and only if its position is greater than the greatest position seen before it, in the order of
-- the log, of the same stream shard in the same partition of the topic. A message that was appended more than 12 hours after "read" is
-- passed over. Messages come again after a crash or a time-out, and may be cut otherwise then; this is all that a sum has to know about it.
-- "At least once" in front of a sum, without the filter, counts twice. Two deployments on one Kafka have topics of their own, or "of" tells
-- them apart.


-- ==== 1. RisingWave ======================================================================================================

CREATE SOURCE changes (v INT, read BIGINT, sections JSONB)
INCLUDE partition AS log_partition
INCLUDE offset AS log_offset
INCLUDE timestamp AS log_time
WITH (
  connector = 'kafka',
  topic = 'changes',
  properties.bootstrap.server = 'kafka:9092',
  scan.startup.mode = 'earliest'
) FORMAT PLAIN ENCODE JSON;

-- Has to stay empty. A version that is not known here may mean anything: stop reading lists, and look.
CREATE MATERIALIZED VIEW changes_unknown AS
SELECT v, count(*) AS messages FROM changes WHERE v IS DISTINCT FROM 3 GROUP BY v;

-- One row a section.
CREATE MATERIALIZED VIEW section AS
SELECT log_partition, log_offset::BIGINT AS log_offset, nth AS nth_section, one ->> 's' AS s, one -> 'e' AS entries
FROM changes, jsonb_array_elements(sections) WITH ORDINALITY AS section(one, nth)
WHERE v = 3 AND log_time <= to_timestamp(read / 1000) + INTERVAL '12 hours' AND log_time > now() - INTERVAL '26 hours';

-- One row a change. Those that are older than the longest window and two hours are let go; a copy of such a change is older still by its
-- own second, so that it is in no window either.
CREATE MATERIALIZED VIEW change AS
SELECT
  log_partition,
  log_offset,
  nth_section,
  nth,
  s,
  one ->> 0 AS subject,
  one ->> 1 AS counter,
  one -> 9 ->> 'from' AS region_before,
  (one ->> 4)::BIGINT AS weight_before,
  one -> 9 ->> 'to' AS region_after,
  (one ->> 5)::BIGINT AS weight_after,
  to_timestamp((one ->> 6)::BIGINT) AS at,
  one ->> 7 AS position
FROM section, jsonb_array_elements(entries) WITH ORDINALITY AS entry(one, nth);

-- The reader's filter.
CREATE MATERIALIZED VIEW counted AS
SELECT * FROM (
  SELECT
    *,
    max(position) OVER (
      PARTITION BY s, log_partition
      ORDER BY log_offset, nth_section, nth
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS seen
  FROM change
) AS judged
WHERE (seen IS NULL OR position > seen) AND weight_before IS NOT NULL;

-- What each subject gained in the last 24 hours, in all regions together (NULL) and in each. A like again from another region is one
-- change: it takes off one region, puts on another, and changes nothing in all together.
CREATE MATERIALIZED VIEW gained_24h AS
SELECT counter, region, subject, sum(gain) AS gained
FROM (
  SELECT counter, subject, CAST(NULL AS VARCHAR) AS region, weight_after - weight_before AS gain, at FROM counted
  UNION ALL
  SELECT counter, subject, region_after, weight_after, at FROM counted WHERE region_after IS NOT NULL
  UNION ALL
  SELECT counter, subject, region_before, -weight_before, at FROM counted WHERE region_before IS NOT NULL
) AS sides
WHERE at > now() - INTERVAL '24 hours'
GROUP BY counter, region, subject;

-- The hundred of each counter and region that gained most; equal ones in the order of their ids' bytes. Unlikes are in the sums: the
-- view follows when one takes a subject off the list.
CREATE MATERIALIZED VIEW top_24h AS
SELECT counter, region, place, subject, gained
FROM (
  SELECT *, row_number() OVER (PARTITION BY counter, region ORDER BY gained DESC, subject) AS place
  FROM gained_24h
  WHERE gained >= 1
) AS placed
WHERE place <= 100;

-- SELECT subject, gained FROM top_24h WHERE counter = 'likes' AND region IS NULL ORDER BY place LIMIT 10;


-- ==== 2. Flink SQL (2.0 or newer: UNNEST .. WITH ORDINALITY) =============================================================

CREATE TABLE changes (
  v INT,
  `read` BIGINT,
  -- Numbers in it are read as texts, and so is the object at the end of an entry.
  sections ARRAY<ROW<s STRING, e ARRAY<ARRAY<STRING>>>>,
  log_partition INT METADATA FROM 'partition' VIRTUAL,
  log_offset BIGINT METADATA FROM 'offset' VIRTUAL,
  log_time TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL,
  arrived AS PROCTIME()
) WITH (
  'connector' = 'kafka',
  'topic' = 'changes',
  'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

-- Records of one partition arrive in the order of the log, and an OVER by the time of arrival keeps it. It may end at the current row
-- only, so that what was seen before is the one before.
CREATE VIEW counted AS
SELECT * FROM (
  SELECT *, LAG(seen_with) OVER (PARTITION BY s, log_partition ORDER BY arrived) AS seen
  FROM (
    SELECT
      *,
      MAX(`position`) OVER (
        PARTITION BY s, log_partition
        ORDER BY arrived
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS seen_with
    FROM (
      SELECT
        s,
        log_partition,
        arrived,
        one[1] AS subject,
        one[2] AS counter,
        JSON_VALUE(one[10], '$.from') AS region_before,
        CAST(one[5] AS BIGINT) AS weight_before,
        JSON_VALUE(one[10], '$.to') AS region_after,
        CAST(one[6] AS BIGINT) AS weight_after,
        TO_TIMESTAMP_LTZ(CAST(one[7] AS BIGINT), 0) AS at_second,
        one[8] AS `position`
      FROM changes
      CROSS JOIN UNNEST(sections) AS section(s, e)
      CROSS JOIN UNNEST(e) WITH ORDINALITY AS entry(one, nth)
      WHERE v = 3 AND log_time <= TO_TIMESTAMP_LTZ(`read`, 3) + INTERVAL '12' HOUR
    )
  )
)
WHERE (seen IS NULL OR `position` > seen) AND weight_before IS NOT NULL;

-- Windows by the time of arrival: the second of a change is not what they go by, so what was late because the log was late counts as
-- new. By `at_second` a watermark would have to guess how late the log may be, and drop what is later without a word.
-- Of all regions together; for one region, the sides of part 1.
CREATE VIEW top_24h AS
SELECT window_end, counter, subject, gained, place
FROM (
  SELECT
    *,
    ROW_NUMBER() OVER (PARTITION BY window_start, window_end, counter ORDER BY gained DESC, subject) AS place
  FROM (
    SELECT window_start, window_end, counter, subject, SUM(weight_after - weight_before) AS gained
    FROM HOP(TABLE counted, DESCRIPTOR(arrived), INTERVAL '1' MINUTE, INTERVAL '24' HOUR)
    GROUP BY window_start, window_end, counter, subject
  )
  WHERE gained >= 1
)
WHERE place <= 100;
