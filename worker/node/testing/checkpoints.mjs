// Checkpoints for tests of the saver: numbered, with ids that sort like their numbers, and large enough to be torn.
export const THREAD = "0a0a0a0a-0000-4000-8000-000000000001";

const PADDING = "x".repeat(20_000);

export function checkpoint(n, extra = {}) {
  return {
    v: 4,
    id: `1f0${String(n).padStart(5, "0")}-0000-6000-8000-000000000000`,
    ts: "2026-01-01T00:00:00.000Z",
    channel_values: { n, padding: PADDING, ...extra },
    channel_versions: { n: n + 1 },
    versions_seen: {},
  };
}

export function config({ thread_id = THREAD, checkpoint_ns = "", checkpoint_id } = {}) {
  return { configurable: { thread_id, checkpoint_ns, ...(checkpoint_id && { checkpoint_id }) } };
}
