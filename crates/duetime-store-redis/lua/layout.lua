-- Part of the scripts that look into a body or make one: where what is in it, as envelope.rs of duetime-core has it.
--
-- A body: version (1 byte), due time in ms (8), nonce (8), number of headers (varint), the headers, payload; numbers
-- are big endian. What comes behind the due time is its tail: a producer sends it, and only a redrive changes it. Of a
-- message that was redriven the number of headers has two bytes, 128 + number and 0, and the first header is the count
-- of redrives; no producer writes that.
-- KEYS  none of its own
-- ARGV  none of its own
-- Returns  nothing
-- Cost  no call
local VERSION, DUE_AT, NONCE_AT, NONCE_END, HEADERS_AT = 1, 2, 10, 17, 18
local DUE, DUE_END, HEAD = '>I8', 9, '>BI8'
-- The length and the name of that header, and the highest count.
local REDRIVES, REDRIVES_MAX = '\16duetime-redrives', 999
-- What a message says of how it is treated: headers that whoever is handed it does not see.
local EXPIRES, MAX_ATTEMPTS, PREVIOUS = 'duetime-expires', 'duetime-max-attempts', 'duetime-previous'
local VISIBILITY, REPEAT = 'duetime-visibility', 'duetime-repeat'
