package main

import (
	"testing"
	"time"
)

// TestAppendBench measures next to nothing, to see that every figure has a value and a floor.
func TestAppendBench(t *testing.T) {
	results, err := appendBench(t.Context(), t.TempDir(), 2, 20*time.Millisecond, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		t.Fatal("nothing was measured")
	}
	for _, r := range results {
		if len(r.Measured.Rounds) != 2 || r.Measured.Min <= 0 || r.Floor.Min <= 0 || r.Ratio.Min <= 0 {
			t.Errorf("%s has no figures: %+v", r.Name, r)
		}
	}
}

// TestFloor checks that the floors do what they say: the record is in the file, the frame arrives.
func TestFloor(t *testing.T) {
	raw, err := openRawFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	for range 3 {
		if err := raw.append(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := raw.file.Stat(); err != nil || info.Size() != 3*recordBytes {
		t.Fatalf("the file has %d bytes (%v), want %d", info.Size(), err, 3*recordBytes)
	}
	loop, err := openLoopback()
	if err != nil {
		t.Fatal(err)
	}
	defer loop.close()
	before := time.Now()
	at, err := loop.deliver()
	if err != nil || at.Before(before) {
		t.Fatalf("the frame arrived at %s (%v), sent after %s", at, err, before)
	}
}
