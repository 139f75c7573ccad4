package resolvers

import (
	"runtime"
	"strings"
	"testing"
)

// A feed keeps nothing of the document that it was opened with, which may be long: whoever follows many runs would fill
// the memory with what is never looked at again.
func TestAFeedKeepsNothingOfItsDocument(t *testing.T) {
	h := newHouse(t, &switchable{})
	defer h.hub.Close()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const size = 1 << 20
	for name, text := range map[string]string{
		"run":     `subscription { a: runEvents(runId: "run_1") { through } } #`,
		"session": `subscription { a: sessionEvents(sessionId: "ses_1") { through } } #`,
	} {
		feeds := make([]Feed, 16)
		h.items(h.open(text, ""))
		before := heap()
		for i := range feeds {
			feeds[i] = h.open(text+strings.Repeat("x", size), "")
			h.items(feeds[i])
		}
		if each := (heap() - before) / int64(len(feeds)); each > size/2 {
			t.Errorf("%s: a feed keeps %d bytes", name, each)
		}
		for _, f := range feeds {
			f.Close()
		}
	}
}
