package main

import (
	"log/slog"
	"testing"
)

// Profiles tell what is in memory: no address but a loopback one is taken.
func TestPprofIsLoopbackOnly(t *testing.T) {
	for _, addr := range []string{"", ":6060", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1"} {
		if stop, err := servePprof(addr, slog.New(slog.DiscardHandler)); err == nil {
			stop()
			t.Errorf("%q was taken", addr)
		}
	}
	stop, err := servePprof("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop()
}
