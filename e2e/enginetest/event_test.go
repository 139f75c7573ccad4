package enginetest

import (
	"encoding/json"
	"fmt"
	"testing"
)

// reading makes events as a client decodes them.
func reading(t *testing.T, raw ...string) []Event {
	t.Helper()
	events := make([]Event, len(raw))
	for i, r := range raw {
		if err := json.Unmarshal([]byte(r), &events[i]); err != nil {
			t.Fatal(err)
		}
	}
	return events
}

func delta(sequence int, text string) string {
	return fmt.Sprintf(`{"runId":"run_1","sequence":%d,"type":"text.delta","delta":%q}`, sequence, text)
}

func TestCompare(t *testing.T) {
	want := []string{delta(1, "a"), delta(2, "b"), delta(3, "c")}
	cases := []struct {
		name string
		got  []string
		diff Differences // First is not compared
	}{
		{"same", want, Differences{}},
		{"lost", []string{want[0], want[2]}, Differences{Lost: 1}},
		{"lost at the end", want[:2], Differences{Lost: 1}},
		{"doubled", []string{want[0], want[1], want[1], want[2]}, Differences{Doubled: 1}},
		{"changed", []string{want[0], delta(2, "x"), want[2]}, Differences{Changed: 1}},
		{"changed in a field that has no place in Event", []string{want[0], `{"runId":"run_1","sequence":2,"type":"text.delta","delta":"b","more":1}`, want[2]}, Differences{Changed: 1}},
		{"out of order", []string{want[0], want[2], want[1]}, Differences{Disordered: 1}},
		{"foreign", append(append([]string{}, want...), delta(4, "d")), Differences{Foreign: 1}},
		{"nothing", nil, Differences{Lost: 3}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := Compare(reading(t, c.got...), reading(t, want...))
			if d.None() != (c.diff == Differences{}) || (d.First == "") != d.None() {
				t.Fatalf("got %s", d)
			}
			d.First = ""
			if d != c.diff {
				t.Fatalf("got %+v, want %+v", d, c.diff)
			}
		})
	}
}

func TestCompareIgnoresKeyOrder(t *testing.T) {
	a := reading(t, `{"sequence":1,"type":"tool.started","arguments":{"a":1,"b":[1.50,9007199254740993]}}`)
	b := reading(t, `{"type":"tool.started","arguments":{"b":[1.50,9007199254740993],"a":1},"sequence":1}`)
	if d := Compare(a, b); !d.None() {
		t.Fatal(d)
	}
	c := reading(t, `{"sequence":1,"type":"tool.started","arguments":{"a":1,"b":[1.50,9007199254740992]}}`)
	if d := Compare(a, c); d.Changed != 1 {
		t.Fatalf("numbers beyond a float's reach are taken for equal: %s", d)
	}
}

func TestCheckLog(t *testing.T) {
	first, last := `{"sequence":1,"type":"run.started"}`, `{"sequence":3,"type":"run.finished"}`
	cases := []struct {
		name string
		log  []string
		good bool
	}{
		{"whole", []string{first, delta(2, "a"), last}, true},
		{"empty", nil, false},
		{"no start", []string{delta(1, "a"), delta(2, "a"), last}, false},
		{"second start", []string{first, `{"sequence":2,"type":"run.started"}`, last}, false},
		{"gap", []string{first, last}, false},
		{"no end", []string{first, delta(2, "a")}, false},
		{"two ends", []string{first, `{"sequence":2,"type":"run.error"}`, last}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := CheckLog(reading(t, c.log...)); (err == nil) != c.good {
				t.Fatalf("got %v, want good %v", err, c.good)
			}
		})
	}
}
