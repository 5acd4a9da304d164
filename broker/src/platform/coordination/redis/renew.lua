-- Keeps a lease for so many milliseconds if it is still ours; 1 when it is.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
