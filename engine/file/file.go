// Package file holds what users attach to messages: content by its hash, and who may use it.
package file

import (
	"context"
	"errors"
	"time"
)

// Limits of attachments.
const (
	MaxBytes      = 8 << 20 // of one
	MaxPerMessage = 8
	MaxNameBytes  = 255
)

// MediaTypes that can be attached, with the capability that a harness needs for them (engine/harness).
var MediaTypes = map[string]string{
	"image/png": "input.images", "image/jpeg": "input.images", "image/gif": "input.images", "image/webp": "input.images",
	"text/plain": "input.documents", "text/markdown": "input.documents", "text/csv": "input.documents",
	"application/json": "input.documents",
}

// Attachment is one uploaded file. Its content is in blob space Attachments under Hash.
type Attachment struct {
	ID          string    `json:"id"` // att_...
	Environment string    `json:"environment"`
	Owner       string    `json:"owner"`
	Name        string    `json:"name"`
	MediaType   string    `json:"mediaType"`
	Size        int64     `json:"size"`
	Hash        string    `json:"hash"`
	CreatedAt   time.Time `json:"createdAt"`
}

// Errors of a Store.
var (
	ErrNotFound = errors.New("file: not found")
	ErrExists   = errors.New("file: exists")
	// ErrUnknownOutcome: the write may or may not have happened; re-read it.
	ErrUnknownOutcome = errors.New("file: write outcome unknown")
)

// Store keeps attachment documents. Implementations must pass store/storetest.
type Store interface {
	InsertAttachment(ctx context.Context, a Attachment) error
	Attachment(ctx context.Context, id string) (Attachment, error)
}
