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
	f, err := os.OpenFile(filepath.Join(folder, "group"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return Result{}, fmt.Errorf("failed to measure plain file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	waiting := make(chan chan error, l.Writers)
	ended := make(chan struct{})
	b := body(l.Events, l.EventBytes)
	go func() {
		defer close(ended)
		for one := range waiting {
			group := []chan error{one}
			for len(waiting) > 0 {
				group = append(group, <-waiting)
			}
			bytes := make([]byte, 0, len(group)*len(b))
			for range group {
				bytes = append(bytes, b...)
			}
			_, err := f.Write(bytes)
			if err == nil {
				err = syncData(f)
			}
			for _, done := range group {
				done <- err
			}
		}
	}()
	r, err := drive("plain file + group commit", l, func(int) error {
		done := make(chan error, 1)
		waiting <- done
		return <-done
	})
	close(waiting)
	<-ended
	return r, err
}
