// What a forecast would be with a smear: each message comes later by an even share of it. Pure arithmetic.

const ramp = (ms) => Math.max(0, ms);
const bow = (ms) => ramp(ms) ** 2 / 2;

// What falls due evenly from one moment to another and is then spread over a smear: the share of it that is due until
// `at` where `part` is `bow`, and how much of it falls due in that millisecond where it is `ramp`.
const share = (part, { from, to }, smear, at) =>
  (part(at - from) - part(at - to) - part(at - from - smear) + part(at - to - smear)) /
  ((to - from) * smear);

// The herd is known more finely than the bucket that it is in.
const parts = (buckets, herd) =>
  [
    ...buckets.map((one) =>
      one.from <= herd.from && herd.from < one.to ? { ...one, count: one.count - herd.count } : one,
    ),
    herd,
  ].filter(({ from, to, count }) => count > 0 && to > from);

// Most messages a second, as they fall due without a smear.
export function peakOf(buckets, herd) {
  const all = parts(buckets, herd);
  const at = (when) =>
    all
      .filter(({ from, to }) => from <= when && when < to)
      .reduce((sum, { from, to, count }) => sum + (1000 * count) / (to - from), 0);
  return Math.max(0, ...all.map(({ from }) => at(from)));
}

// With a smear of so many milliseconds: what falls due in each bucket, the most in a second, and how many seconds the
// last one is late where `waiting` messages are due already and `capacity` are delivered in a second.
export function spreadOver(buckets, herd, smear, capacity, waiting) {
  const all = parts(buckets, herd);
  const sum = (part, at) =>
    all.reduce((so, one) => so + one.count * share(part, one, smear, at), 0);
  const edges = [
    ...new Set(all.flatMap(({ from, to }) => [from, to, from + smear, to + smear])),
  ].sort((a, b) => a - b);
  let [queue, late] = [waiting, 0];
  for (const [n, at] of edges.entries()) {
    if (!n) continue;
    const before = edges[n - 1];
    const came = sum(bow, at) - sum(bow, before);
    queue = Math.max(0, queue + came - (capacity * (at - before)) / 1000);
    late = Math.max(late, queue / capacity);
  }
  return {
    counts: buckets.map(({ from, to }) => Math.max(0, sum(bow, to) - sum(bow, from))),
    peak: 1000 * Math.max(0, ...edges.map((at) => sum(ramp, at))),
    late,
  };
}
