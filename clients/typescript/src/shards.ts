/** Which shard an id lives in: murmur3 and a jump consistent hash, as the node computes it. */

const MASK = (1n << 64n) - 1n;

/** The shard of an id among `shards`. `seed`: the topic's, from `GET /v1/topics/{topic}/shards`. */
export function shardOf(id: string, seed: number, shards: number): number {
  let key = murmur3x64(new TextEncoder().encode(id), seed);
  let at = 0;
  for (let next = 0; next < shards; ) {
    at = next;
    key = (key * 2862933555777941757n + 1n) & MASK;
    next = Math.floor((at + 1) * (2 ** 31 / Number((key >> 33n) + 1n)));
  }
  return at;
}

const rotl64 = (value: bigint, by: bigint) => ((value << by) | (value >> (64n - by))) & MASK;

/** The first 64 bits of MurmurHash3 x64 128 bit (Austin Appleby). */
function murmur3x64(data: Uint8Array, seed: number): bigint {
  const [c1, c2] = [0x87c37b91114253d5n, 0x4cf5ad432745937fn];
  const mixed = (word: bigint, first: bigint, by: bigint, second: bigint) =>
    (rotl64((word * first) & MASK, by) * second) & MASK;
  const final = (value: bigint) => {
    value = ((value ^ (value >> 33n)) * 0xff51afd7ed558ccdn) & MASK;
    value = ((value ^ (value >> 33n)) * 0xc4ceb9fe1a85ec53n) & MASK;
    return value ^ (value >> 33n);
  };
  const word = (from: number, to: number) =>
    data.subarray(from, to).reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  let [a, b] = [BigInt(seed), BigInt(seed)];
  const whole = data.length & ~15;
  for (let at = 0; at < whole; at += 16) {
    a ^= mixed(word(at, at + 8), c1, 31n, c2);
    a = ((rotl64(a, 27n) + b) * 5n + 0x52dce729n) & MASK;
    b ^= mixed(word(at + 8, at + 16), c2, 33n, c1);
    b = ((rotl64(b, 31n) + a) * 5n + 0x38495ab5n) & MASK;
  }
  b ^= mixed(word(Math.min(whole + 8, data.length), data.length), c2, 33n, c1);
  a ^= mixed(word(whole, Math.min(whole + 8, data.length)), c1, 31n, c2);
  a ^= BigInt(data.length);
  b ^= BigInt(data.length);
  a = (a + b) & MASK;
  b = (b + a) & MASK;
  return (final(a) + final(b)) & MASK;
}
