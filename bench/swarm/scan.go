package swarm

import (
	"bytes"
	"fmt"
	"time"
)

// Query is the selection that the scanner understands, as a chat client asks: sequence, time and type of each event,
// next to each other and in this order, then what its type has.
const Query = `subscription($run: ID!, $after: Int! = 0) { runEvents(runId: $run, after: $after) { through caughtUp events {
  __typename runId sequence time type namespace
  ... on TextStartedEvent { messageId role } ... on TextDeltaEvent { messageId delta } ... on TextFinishedEvent { messageId }
} } }`

var (
	sequenceMark = []byte(`"sequence":`)
	timeMark     = []byte(`,"time":"`)
	typeMark     = []byte(`,"type":"`)
)

// stampSize is the length of 2026-05-04T12:30:00.000Z.
const stampSize = 24

// scan counts the events of a message, and checks that each is the next one.
func (c *conn) scan(b []byte, sum *tally) (n int, err error) {
	for {
		at := bytes.Index(b, sequenceMark)
		if at < 0 {
			return n, nil
		}
		b = b[at+len(sequenceMark):]
		seq, digits := int64(0), 0
		for digits < len(b) && digits < 18 && b[digits] >= '0' && b[digits] <= '9' {
			seq = seq*10 + int64(b[digits]-'0')
			digits++
		}
		b = b[digits:]
		// A subscription may begin in mid-run; from there on there is no gap.
		if c.seq > 0 && seq != c.seq+1 {
			return n, fmt.Errorf("event %d came behind event %d", seq, c.seq)
		}
		c.seq = seq
		n++
		sum.events++
		if !bytes.HasPrefix(b, timeMark) || len(b) < len(timeMark)+stampSize+1 {
			continue
		}
		stamp := b[len(timeMark) : len(timeMark)+stampSize]
		b = b[len(timeMark)+stampSize+1:]
		if !bytes.HasPrefix(b, typeMark) {
			continue
		}
		b = b[len(typeMark):]
		switch {
		case bytes.HasPrefix(b, []byte(`text.delta"`)):
			if sum.sampling {
				if ms, ok := sinceMidnight(stamp); ok {
					sum.latencies = append(sum.latencies, between(ms, sum.now))
				}
			}
		case bytes.HasPrefix(b, []byte(`text.finished"`)):
			sum.messages++
		case bytes.HasPrefix(b, []byte(`run.finished"`)), bytes.HasPrefix(b, []byte(`run.cancelled"`)),
			bytes.HasPrefix(b, []byte(`run.error"`)), bytes.HasPrefix(b, []byte(`run.interrupted"`)):
			sum.ended++
		}
	}
}

const day = 24 * time.Hour

// sinceMidnight reads hours to milliseconds of a stamp in UTC.
func sinceMidnight(stamp []byte) (time.Duration, bool) {
	number := func(from, to int) (n time.Duration) {
		for _, d := range stamp[from:to] {
			n = n*10 + time.Duration(d-'0')
		}
		return n
	}
	if stamp[10] != 'T' || stamp[19] != '.' || stamp[23] != 'Z' {
		return 0, false
	}
	return number(11, 13)*time.Hour + number(14, 16)*time.Minute + number(17, 19)*time.Second + number(20, 23)*time.Millisecond, true
}

// between is the time from a stamp of today, or of just before midnight, to now.
func between(stamp time.Duration, now time.Time) time.Duration {
	now = now.UTC()
	of := time.Duration(now.Hour())*time.Hour + time.Duration(now.Minute())*time.Minute +
		time.Duration(now.Second())*time.Second + time.Duration(now.Nanosecond())
	return (of - stamp + day) % day
}
