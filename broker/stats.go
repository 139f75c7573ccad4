package broker

import "sync/atomic"

// stats are the counters of a Broker.
type stats struct {
	calls, refused, failed, cut, left, bytesOut atomic.Int64
}

// Stats is a reading of the broker's counters since its start.
type Stats struct {
	Calls    int64 // model calls that were passed on
	Refused  int64 // calls without a good capability, beyond a limit, or to no door
	Failed   int64 // passed on, and answered with an error status or not at all
	Cut      int64 // broken off by the provider, or by a timeout, after the first byte
	Left     int64 // broken off by the worker
	BytesOut int64 // of responses, to workers
	Active   int64 // model calls going on now
}

// Stats reads the counters.
func (b *Broker) Stats() Stats {
	return Stats{
		Calls: b.stats.calls.Load(), Refused: b.stats.refused.Load(), Failed: b.stats.failed.Load(),
		Cut: b.stats.cut.Load(), Left: b.stats.left.Load(), BytesOut: b.stats.bytesOut.Load(), Active: int64(b.calls.now()),
	}
}
