package eventtest

import "github.com/harness-engine/harness-engine/engine/event"

// Expire takes the chunks of a run that lie wholly at or below through away, as retention does, and answers reads from before
// it with *event.ExpiredError from now on.
func (l *Log) Expire(runID string, through int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expired == nil {
		l.expired = map[string]int64{}
	}
	l.expired[runID] = through
	kept := l.runs[runID][:0]
	for _, s := range l.runs[runID] {
		if s.chunk.Last > through {
			kept = append(kept, s)
		}
	}
	l.runs[runID] = kept
}

// gone is the answer to a read that needs the event; nil where it has not expired.
func (l *Log) gone(runID string, sequence int64) error {
	if through := l.expired[runID]; sequence <= through {
		return event.Expired(runID, through)
	}
	return nil
}
