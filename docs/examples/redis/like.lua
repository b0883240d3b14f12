-- Likes or unlikes, and keeps the change in a stream, in one step: EVAL this 2 likes:POST like-changes USER like|unlike MS
-- In a cluster both keys have to share a slot, which they do not: use a stream for each hash tag there.
local changed
if ARGV[2] == 'like' then
  changed = redis.call('SADD', KEYS[1], ARGV[1])
else
  changed = redis.call('SREM', KEYS[1], ARGV[1])
end
if changed == 1 then
  redis.call('XADD', KEYS[2], '*', 'post', string.sub(KEYS[1], 7), 'user', ARGV[1], 'action', ARGV[2], 'ts', ARGV[3])
end
return changed
