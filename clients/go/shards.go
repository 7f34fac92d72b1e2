package duetime

import (
	"encoding/binary"
	"math/bits"
)

// ShardOf returns the shard of an id among shards. The seed is the topic's, from GET /v1/topics/{topic}/shards.
//
// It is murmur3 and a jump consistent hash (Lamping and Veach, 2014), as the node computes it.
func ShardOf(id string, seed uint32, shards int) int {
	key, at := murmur3([]byte(id), uint64(seed)), int64(0)
	for next := int64(0); next < int64(shards); {
		at = next
		key = key*2862933555777941757 + 1
		next = int64(float64(at+1) * (float64(1<<31) / float64((key>>33)+1)))
	}
	return int(at)
}

// murmur3 returns the first 64 bits of MurmurHash3 x64 128 bit (Austin Appleby).
func murmur3(data []byte, seed uint64) uint64 {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	first := func(word uint64) uint64 { return bits.RotateLeft64(word*c1, 31) * c2 }
	second := func(word uint64) uint64 { return bits.RotateLeft64(word*c2, 33) * c1 }
	final := func(value uint64) uint64 {
		value = (value ^ value>>33) * 0xff51afd7ed558ccd
		value = (value ^ value>>33) * 0xc4ceb9fe1a85ec53
		return value ^ value>>33
	}
	a, b, length := seed, seed, uint64(len(data))
	for ; len(data) >= 16; data = data[16:] {
		a ^= first(binary.LittleEndian.Uint64(data))
		a = (bits.RotateLeft64(a, 27)+b)*5 + 0x52dce729
		b ^= second(binary.LittleEndian.Uint64(data[8:]))
		b = (bits.RotateLeft64(b, 31)+a)*5 + 0x38495ab5
	}
	var tail [16]byte
	copy(tail[:], data)
	b ^= second(binary.LittleEndian.Uint64(tail[8:])) ^ length
	a ^= first(binary.LittleEndian.Uint64(tail[:])) ^ length
	a += b
	b += a
	return final(a) + final(b)
}
