-- The generic cell rate algorithm on the server's clock; the same arithmetic as gcra.rs.
-- ARGV: microseconds between calls, burst. Gives allowed, remaining, reset and retry in microseconds.
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local full_at = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local spent = full_at + interval - now
local tolerance = interval * burst
if spent > tolerance then return { 0, 0, full_at - now, spent - tolerance } end
redis.call('SET', KEYS[1], string.format('%.0f', full_at + interval), 'PX', math.ceil(spent / 1000))
return { 1, math.floor((tolerance - spent) / interval), spent, 0 }
