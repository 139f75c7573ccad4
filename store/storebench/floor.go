package storebench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Floor measures what one durable append costs at least on the disk of the folder: a write of the bytes and a sync.
func Floor(folder string, l Load) (_ Result, err error) {
	l = l.normalised()
	l.Writers = 1
	f, err := os.OpenFile(filepath.Join(folder, "floor"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return Result{}, fmt.Errorf("failed to measure floor: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := body(l.Events, l.EventBytes)
	return drive("raw write + sync", l, func(int) error {
		if _, err := f.Write(b); err != nil {
			return err
		}
		return syncData(f)
	})
}

// GroupFile measures a plain file behind a group commit: what waits is written at once and synced once. It is what a
// log without keys, reads, documents and a schema would reach.
func GroupFile(folder string, l Load) (_ Result, err error) {
	l = l.normalised()
	f, err := openGroup(folder, l.Writers)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	b := body(l.Events, l.EventBytes)
	return drive("plain file + group commit", l, func(int) error { return f.append(b) })
}

// group is a plain file with group commit.
type group struct {
	file    *os.File
	waiting chan groupWrite
	ended   chan struct{}
}

type groupWrite struct {
	bytes []byte
	done  chan error
}

func openGroup(folder string, writers int) (*group, error) {
	f, err := os.OpenFile(filepath.Join(folder, "group"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("failed to measure plain file: %w", err)
	}
	g := &group{file: f, waiting: make(chan groupWrite, writers), ended: make(chan struct{})}
	go g.loop()
	return g, nil
}

func (g *group) loop() {
	defer close(g.ended)
	var all []byte
	for one := range g.waiting {
		together := []groupWrite{one}
		for len(g.waiting) > 0 {
			together = append(together, <-g.waiting)
		}
		all = all[:0]
		for _, w := range together {
			all = append(all, w.bytes...)
		}
		_, err := g.file.Write(all)
		if err == nil {
			err = syncData(g.file)
		}
		for _, w := range together {
			w.done <- err
		}
	}
}

// append returns when the bytes are durable.
func (g *group) append(b []byte) error {
	w := groupWrite{b, make(chan error, 1)}
	g.waiting <- w
	return <-w.done
}

func (g *group) close() error {
	close(g.waiting)
	<-g.ended
	return g.file.Close()
}
