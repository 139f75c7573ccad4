package event

import "testing"

func TestBell(t *testing.T) {
	var b Bell
	calls := 0
	ring := func() { calls++ }
	want := func(what string, n int) {
		t.Helper()
		if calls != n {
			t.Fatalf("%s: %d calls, want %d", what, calls, n)
		}
	}
	b.Notify(ring)
	want("nothing has rung", 0)
	b.Ring()
	want("rung", 1)
	b.Notify(nil)
	b.Ring()
	b.Ring()
	b.Notify(nil) // does not lose what was kept
	b.Notify(ring)
	want("rung twice before there was anybody", 2)
	b.Notify(ring)
	want("a ringing that was kept is told once", 2)
	b.Notify(nil)
	b.Ring()
	b.Quiet()
	b.Notify(ring)
	want("looked at meanwhile", 2)
	b.Take()
	b.Ring()
	b.Take()
	b.Notify(ring)
	want("taken", 2)
}
