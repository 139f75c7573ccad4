package store

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
)

// CheckKey refuses a key part that is empty, longer than MaxKeyBytes, not UTF-8, or that holds control characters.
// field names it in the error.
func CheckKey(field, value string) error {
	if value == "" {
		return fmt.Errorf("%w: %s is empty", ErrInvalid, field)
	}
	return CheckFilter(field, value)
}

// CheckFilter is CheckKey for a value that may be empty.
func CheckFilter(field, value string) error {
	switch {
	case len(value) > MaxKeyBytes:
		return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrTooLarge, field, len(value), MaxKeyBytes)
	case !utf8.ValidString(value):
		return fmt.Errorf("%w: %s is not valid UTF-8", ErrInvalid, field)
	}
	for _, r := range value {
		if r < 0x20 || r == 0x7f {
			return fmt.Errorf("%w: %s holds the control character %U", ErrInvalid, field, r)
		}
	}
	return nil
}

// CheckKeys runs CheckKey over pairs of field and value.
func CheckKeys(pairs ...[2]string) error {
	for _, p := range pairs {
		if err := CheckKey(p[0], p[1]); err != nil {
			return err
		}
	}
	return nil
}

// CheckPage refuses a page size outside 1 to MaxPage.
func CheckPage(limit int) error {
	if limit < 1 || limit > MaxPage {
		return fmt.Errorf("%w: limit is %d, it must be 1 to %d", ErrInvalid, limit, MaxPage)
	}
	return nil
}

// CheckInsertRev refuses a first revision that is not 1.
func CheckInsertRev(rev int64) error {
	if rev != 1 {
		return fmt.Errorf("%w: rev of a new document is %d, it must be 1", ErrInvalid, rev)
	}
	return nil
}

// CheckUpdateRev refuses a next revision below 2.
func CheckUpdateRev(rev int64) error {
	if rev < 2 {
		return fmt.Errorf("%w: rev of an update is %d, it must be the next revision, 2 or more", ErrInvalid, rev)
	}
	return nil
}

// First and last instant that fits in nanoseconds since 1970 in 64 bits, as time.Time.UnixNano needs it.
var (
	minTime = time.Unix(0, -1<<63)
	maxTime = time.Unix(0, 1<<63-1)
)

// CheckTime refuses a time that a store cannot sort by.
func CheckTime(field string, t time.Time) error {
	if t.Before(minTime) || t.After(maxTime) {
		return fmt.Errorf("%w: %s is outside the years 1678 to 2261", ErrInvalid, field)
	}
	return nil
}

// CheckChunk refuses a chunk that breaks the rules of event.Chunk. It does not look into the body.
func CheckChunk(c event.Chunk) error {
	err := CheckKeys([2]string{"runId", c.RunID}, [2]string{"sessionId", c.SessionID}, [2]string{"writer", c.Writer})
	n := c.Last - c.First + 1
	switch {
	case err != nil:
		return err
	case c.First < 1:
		return fmt.Errorf("%w: first is %d, it must be 1 or more", ErrInvalid, c.First)
	case c.Last < c.First:
		return fmt.Errorf("%w: last is %d, before first, which is %d", ErrInvalid, c.Last, c.First)
	case n > event.MaxChunkEvents:
		return fmt.Errorf("%w: the chunk has %d events, at most %d are allowed", ErrTooLarge, n, event.MaxChunkEvents)
	case c.Gen < 0:
		return fmt.Errorf("%w: gen is %d, it must not be negative", ErrInvalid, c.Gen)
	case len(c.Body) == 0:
		return fmt.Errorf("%w: body is empty", ErrInvalid)
	case len(c.Body) > event.MaxChunkBytes:
		return fmt.Errorf("%w: body has %d bytes, at most %d are allowed", ErrTooLarge, len(c.Body), event.MaxChunkBytes)
	}
	return nil
}

// CheckRead refuses the arguments of a read of the log that are out of bounds.
func CheckRead(runID string, after int64, maxEvents int) error {
	err := CheckKey("runId", runID)
	switch {
	case err != nil:
		return err
	case after < 0:
		return fmt.Errorf("%w: after is %d, it must not be negative", ErrInvalid, after)
	case maxEvents < 1 || maxEvents > MaxReadEvents:
		return fmt.Errorf("%w: maxEvents is %d, it must be 1 to %d", ErrInvalid, maxEvents, MaxReadEvents)
	}
	return nil
}

// CheckExpiry refuses a mark of retention that may not be there: of a run that has not ended, or beyond its log.
func CheckExpiry(r run.Run) error {
	switch {
	case r.ExpiredThrough < 0 || r.ExpiredThrough > r.LastSequence:
		return fmt.Errorf("%w: expiredThrough is %d, it must be 0 to %d, the log's last sequence", ErrInvalid, r.ExpiredThrough, r.LastSequence)
	case r.ExpiredThrough > 0 && !r.Status.Ended():
		return fmt.Errorf("%w: expiredThrough is %d, but the run has not ended", ErrInvalid, r.ExpiredThrough)
	case r.Pruned && r.ExpiredThrough == 0:
		return fmt.Errorf("%w: pruned, but nothing has expired", ErrInvalid)
	}
	return nil
}
