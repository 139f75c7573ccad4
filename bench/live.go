package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
)

// live is what a Go process holds on to, after a collection of its garbage.
type live struct {
	bytes      int64 // of objects that can be reached, and of stacks
	goroutines int64
}

var (
	heapAlloc  = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)
	stackInuse = regexp.MustCompile(`(?m)^# Stack = (\d+) / \d+$`)
	goroutines = regexp.MustCompile(`^goroutine profile: total (\d+)`)
)

// live asks the engine's profiling listener, which collects the garbage first.
func (p *profiler) live(ctx context.Context) (live, error) {
	heap, err1 := p.get(ctx, "heap?gc=1&debug=1")
	stacks, err2 := p.get(ctx, "goroutine?debug=1")
	if err := errors.Join(err1, err2); err != nil {
		return live{}, err
	}
	number := func(in []byte, r *regexp.Regexp) int64 {
		m := r.FindSubmatch(in)
		if m == nil {
			err1 = fmt.Errorf("the engine's profile has no %s", r)
			return 0
		}
		n, err := strconv.ParseInt(string(m[1]), 10, 64)
		err1 = errors.Join(err1, err)
		return n
	}
	l := live{bytes: number(heap, heapAlloc) + number(heap, stackInuse), goroutines: number(stacks, goroutines)}
	return l, err1
}

// maxProfile bounds a profile in bytes.
const maxProfile = 64 << 20

func (p *profiler) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/debug/pprof/"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("failed to make a request: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("failed to take a profile: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("failed to take a profile: the engine answered %d", res.StatusCode)
	}
	return io.ReadAll(io.LimitReader(res.Body, maxProfile))
}
