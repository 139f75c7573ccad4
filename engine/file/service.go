package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// MaxMessageBytes bounds the attachments of one message together; it is the harness contract's bound of one turn.
const MaxMessageBytes = 10 << 20

// Uploads that are in memory at once; the others wait. The bound of one caller keeps one that sends slowly from holding
// all others up.
const (
	maxUploads         = 16
	maxUploadsOfCaller = 4
)

// Options are what a Service is made of. Files and Blobs are required.
type Options struct {
	Files Store
	Blobs blob.Store
	Now   func() time.Time // nil: time.Now
}

// Service takes attachments in and gives them back to their owner. Its methods may be called concurrently. The caller's
// right to attach has been checked.
type Service struct {
	o     Options
	slots chan struct{}

	mu    sync.Mutex
	lanes map[authz.Caller]*lane // of callers that upload
}

// lane has the places of one caller.
type lane struct {
	slots chan struct{}
	users int // uploads that wait or are in work; guarded by Service.mu
}

// enter waits for a place of the caller's and then for one of all.
func (s *Service) enter(ctx context.Context, caller authz.Caller) (leave func(), err error) {
	s.mu.Lock()
	l := s.lanes[caller]
	if l == nil {
		l = &lane{slots: make(chan struct{}, maxUploadsOfCaller)}
		s.lanes[caller] = l
	}
	l.users++
	s.mu.Unlock()
	var held []chan struct{}
	leave = func() {
		for _, slots := range held {
			<-slots
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(s.lanes, caller)
		}
	}
	for _, slots := range []chan struct{}{l.slots, s.slots} {
		select {
		case slots <- struct{}{}:
			held = append(held, slots)
		case <-ctx.Done():
			leave()
			return nil, context.Cause(ctx)
		}
	}
	return leave, nil
}

// NewService returns a Service. It fails when a required option is missing.
func NewService(o Options) (*Service, error) {
	if o.Files == nil || o.Blobs == nil {
		return nil, errors.New("file: a service needs files and blobs")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Service{o: o, slots: make(chan struct{}, maxUploads), lanes: map[authz.Caller]*lane{}}, nil
}

// Upload is a file on its way in.
type Upload struct {
	Name      string // without a path; empty: none was given
	MediaType string // as declared, parameters included; empty or application/octet-stream: by content and name
	Body      io.Reader
}

// Upload stores a file: first its content, then the document that names it. Refusals are problem.BadUserInput with the
// field name, mediaType or body (with maxBytes where it is too long), and problem.Capacity when there is no room. An error of reading the body is the
// cause of a problem with the field body.
func (s *Service) Upload(ctx context.Context, caller authz.Caller, u Upload) (Attachment, error) {
	if u.Name == "" {
		u.Name = "attachment"
	}
	if err := checkFileName(u.Name); err != nil {
		return Attachment{}, err
	}
	declared, err := declaredType(u.MediaType)
	if err != nil {
		return Attachment{}, err
	}
	leave, err := s.enter(ctx, caller)
	if err != nil {
		return Attachment{}, err
	}
	defer leave()
	content, err := io.ReadAll(io.LimitReader(u.Body, MaxBytes+1))
	switch {
	case err != nil && problem.Is(err, problem.BadUserInput):
		return Attachment{}, fmt.Errorf("failed to read an upload: %w", err)
	case err != nil: // the client's doing, not ours
		return Attachment{}, problem.Field("body", "did not come whole, or not in time").Because(fmt.Errorf("failed to read an upload: %w", err))
	case len(content) == 0:
		return Attachment{}, problem.Field("body", "must not be empty")
	case len(content) > MaxBytes:
		return Attachment{}, tooLarge()
	}
	mediaType, err := typeOf(declared, u.Name, content)
	if err != nil {
		return Attachment{}, err
	}
	ref, err := s.o.Blobs.Put(ctx, blob.Attachments, bytes.NewReader(content), MaxBytes, "")
	switch {
	case errors.Is(err, blob.ErrFull):
		return Attachment{}, problem.New(problem.Capacity, "there is no room for attachments").With("retryAfter", 60).Because(err)
	case errors.Is(err, blob.ErrTooLarge):
		return Attachment{}, tooLarge()
	case err != nil:
		return Attachment{}, fmt.Errorf("failed to store an attachment's content: %w", err)
	}
	a := Attachment{
		ID: id.New(id.Attachment), Environment: caller.Environment, Owner: caller.Subject, Name: u.Name, MediaType: mediaType,
		Size: ref.Size, Hash: ref.Hash, CreatedAt: s.o.Now().UTC().Truncate(time.Millisecond),
	}
	if err := s.o.Files.InsertAttachment(ctx, a); err != nil {
		return Attachment{}, fmt.Errorf("failed to insert attachment %s: %w", a.ID, err)
	}
	return a, nil
}

func tooLarge() error {
	return problem.Field("body", "is longer than %d bytes", MaxBytes).With("maxBytes", MaxBytes)
}

// Open finds the caller's attachment and its content. Reading to the end verifies the content. problem.NotFound where it
// is not there, or somebody else's.
func (s *Service) Open(ctx context.Context, caller authz.Caller, attachmentID string) (Attachment, io.ReadCloser, error) {
	a, err := s.find(ctx, caller, attachmentID)
	if err != nil {
		return a, nil, err
	}
	content, size, err := s.o.Blobs.Open(ctx, blob.Attachments, a.Hash)
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return a, nil, problem.NotFoundf("attachment").Because(err)
	case err != nil:
		return a, nil, fmt.Errorf("failed to open attachment %s: %w", a.ID, err)
	case size != a.Size:
		_ = content.Close()
		return a, nil, fmt.Errorf("failed to open attachment %s: %w: it has %d bytes of %d", a.ID, blob.ErrHash, size, a.Size)
	}
	return a, content, nil
}

// find reads the document of the caller's own attachment.
func (s *Service) find(ctx context.Context, caller authz.Caller, attachmentID string) (Attachment, error) {
	if !id.Valid(id.Attachment, attachmentID) {
		return Attachment{}, problem.NotFoundf("attachment")
	}
	a, err := s.o.Files.Attachment(ctx, attachmentID)
	if errors.Is(err, ErrNotFound) || (err == nil && (a.Environment != caller.Environment || a.Owner != caller.Subject)) {
		return Attachment{}, problem.NotFoundf("attachment")
	}
	if err != nil {
		return Attachment{}, fmt.Errorf("failed to read attachment %s: %w", attachmentID, err)
	}
	return a, nil
}

// Check finds what a message refers to: the caller's own attachments, each once, within the bounds of a message. path is
// the field of the public API that has the ids.
func (s *Service) Check(ctx context.Context, caller authz.Caller, path string, ids []string) ([]Attachment, error) {
	if len(ids) > MaxPerMessage {
		return nil, problem.Field(path, "has %d attachments, at most %d", len(ids), MaxPerMessage)
	}
	found := make([]Attachment, len(ids))
	seen := make(map[string]bool, len(ids))
	var size int64
	for i, attachmentID := range ids {
		at := fmt.Sprintf("%s[%d]", path, i)
		if seen[attachmentID] {
			return nil, problem.Field(at, "is there twice")
		}
		seen[attachmentID] = true
		a, err := s.find(ctx, caller, attachmentID)
		switch {
		case problem.Is(err, problem.NotFound):
			return nil, problem.Field(at, "is not an attachment of yours")
		case err != nil:
			return nil, err
		}
		found[i], size = a, size+a.Size
	}
	if size > MaxMessageBytes {
		return nil, problem.Field(path, "has %d bytes together, at most %d", size, MaxMessageBytes)
	}
	return found, nil
}
