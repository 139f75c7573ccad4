package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/session"
)

const (
	// ContentAge is how old content must be before it is removed because nothing names it: what is stored is named a
	// moment later, and a person may take a while to send what they have attached.
	ContentAge = 24 * time.Hour
	// contentEvery is how often Cleaner.Run looks.
	contentEvery = time.Hour
)

// Content is what is asked about stored content. Implementations must pass store/storetest.
type Content interface {
	Bindings
	// UnusedAttachments lists attachments that were made before a time and that no run names, by id ascending, id > after.
	UnusedAttachments(ctx context.Context, before time.Time, after string, limit int) ([]file.Attachment, error)
	// DeleteUnusedAttachment removes the document of an attachment, unless a run names it by now; it reports whether it did.
	DeleteUnusedAttachment(ctx context.Context, id string) (bool, error)
	// ContentAttached reports whether an attachment has the content.
	ContentAttached(ctx context.Context, hash string) (bool, error)
}

// Blobs is where content is stored.
type Blobs interface {
	List(ctx context.Context, space blob.Space, after string, limit int) ([]string, error)
	// EachPart calls f with each space that is a part of the whole, for instance threads.ses_1-1 of threads.
	EachPart(ctx context.Context, whole blob.Space, f func(part blob.Space) error) error
	// DeleteOld removes a blob that was last stored before a time; it reports whether it did. Storing the same content
	// again makes it young, so it cannot be removed under whoever is about to name it.
	DeleteOld(ctx context.Context, space blob.Space, hash string, before time.Time) (bool, error)
}

// CleanerOptions are what a cleaner needs. Content and Blobs are required.
type CleanerOptions struct {
	Content Content
	Blobs   Blobs
	Now     func() time.Time
	Logger  *slog.Logger
}

// Cleaner removes content that nothing names: attachments that were never sent, and states of conversations that a crash, a
// backup or a lost removal left behind.
type Cleaner struct{ o CleanerOptions }

// NewCleaner makes a cleaner.
func NewCleaner(o CleanerOptions) *Cleaner {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Cleaner{o}
}

// Run cleans at once and then every hour until ctx ends. What fails is logged and tried again the next time.
func (c *Cleaner) Run(ctx context.Context) {
	tick := time.NewTicker(contentEvery)
	defer tick.Stop()
	for {
		n, err := c.Clean(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.o.Logger.Warn("content that nothing names is not removed, it will be tried again", "error", err)
		case n > 0:
			c.o.Logger.Info("content that nothing names is removed", "blobs", n)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Clean removes what is older than ContentAge and not named by anything, and returns how many blobs that were.
func (c *Cleaner) Clean(ctx context.Context) (removed int, err error) {
	before := c.o.Now().Add(-ContentAge)
	if err := c.dropUnused(ctx, before); err != nil {
		return 0, err
	}
	n, err := c.each(ctx, blob.Attachments, before, func(hash string) (bool, error) { return c.o.Content.ContentAttached(ctx, hash) })
	if removed += n; err != nil {
		return removed, err
	}
	err = c.o.Blobs.EachPart(ctx, blob.Threads, func(part blob.Space) error {
		sessionID, epoch, ok := threadOf(part)
		if !ok {
			return nil
		}
		n, err := c.each(ctx, part, before, func(hash string) (bool, error) { return c.isHead(ctx, sessionID, epoch, hash) })
		removed += n
		return err
	})
	return removed, err
}

// dropUnused removes the documents of attachments that no run names.
func (c *Cleaner) dropUnused(ctx context.Context, before time.Time) error {
	for after := ""; ; {
		unused, err := c.o.Content.UnusedAttachments(ctx, before, after, page)
		if err != nil {
			return err
		}
		for _, a := range unused {
			after = a.ID
			if _, err := c.o.Content.DeleteUnusedAttachment(ctx, a.ID); err != nil {
				return err
			}
		}
		if len(unused) < page {
			return nil
		}
	}
}

// each removes what is old in a space and not named.
func (c *Cleaner) each(ctx context.Context, space blob.Space, before time.Time, named func(hash string) (bool, error)) (removed int, err error) {
	for after := ""; ; {
		hashes, err := c.o.Blobs.List(ctx, space, after, page)
		if err != nil {
			return removed, fmt.Errorf("failed to list blobs of %s: %w", space, err)
		}
		for _, hash := range hashes {
			after = hash
			keep, err := named(hash)
			if err != nil {
				return removed, err
			}
			if keep {
				continue
			}
			gone, err := c.o.Blobs.DeleteOld(ctx, space, hash, before)
			if err != nil {
				return removed, fmt.Errorf("failed to remove blob %s of %s: %w", hash, space, err)
			}
			if gone {
				removed++
			}
		}
		if len(hashes) < page {
			return removed, nil
		}
	}
}

// isHead reports whether the conversation goes on from the state.
func (c *Cleaner) isHead(ctx context.Context, sessionID string, epoch int64, hash string) (bool, error) {
	b, err := c.o.Content.Session(ctx, sessionID)
	if errors.Is(err, session.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("failed to read session %s: %w", sessionID, err)
	}
	return b.Epoch == epoch && b.Head.Ref == hash, nil
}

// threadOf reads the name that thread.SpaceOf gives.
func threadOf(part blob.Space) (sessionID string, epoch int64, ok bool) {
	name, ok := strings.CutPrefix(string(part), string(blob.Threads)+".")
	i := strings.LastIndexByte(name, '-')
	if !ok || i < 1 {
		return "", 0, false
	}
	epoch, err := strconv.ParseInt(name[i+1:], 10, 64)
	return name[:i], epoch, err == nil
}
