package transport

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/resolvers"
)

// multipartOverhead is what a form may have beside the file.
const multipartOverhead = 16 << 10

var (
	uploadRoute   = route{methods: []string{http.MethodPost}, refuse: refuseProblem, admissible: preflighted}
	downloadRoute = route{methods: []string{http.MethodGet}, refuse: refuseProblem, admissible: preflighted}
)

// attachments are POST /v1/attachments and GET /v1/attachments/{id}.
type attachments struct {
	server *Server
	api    *resolvers.Root
	files  Files
}

// guarded lets a caller in who may attach, for as long as an operation may take, and answers with the problem that the
// handler returns.
func (a attachments) guarded(handle func(http.ResponseWriter, *http.Request, authz.Caller) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, p := a.server.admitRequest(r.Context())
		if p != nil {
			refuseProblem(w, 0, p)
			return
		}
		defer c.release()
		ctx, cancel := context.WithTimeout(r.Context(), a.server.limits.OperationTimeout)
		defer cancel()
		err := a.api.Guard.Require(ctx, authz.CanAttach, authz.Platform())
		if err == nil {
			who, _ := authz.CallerFrom(ctx) // there is one: it was asked about
			err = handle(w, r.WithContext(ctx), who)
		}
		if err != nil {
			status, p := a.present(ctx, err)
			refuseProblem(w, status, p)
		}
	})
}

// present makes what a client may see of an error, as for operations. A status of 0 is the code's.
func (a attachments) present(ctx context.Context, err error) (int, *problem.Error) {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		err = problem.Field("body", "is longer than %d bytes", file.MaxBytes).With("maxBytes", file.MaxBytes)
	}
	p, ok := problem.As(err)
	if !ok {
		shown := a.api.Present(ctx, err)
		code, _ := shown.Extensions["code"].(string)
		p = problem.New(problem.Code(code), "%s", shown.Message)
		if incident, ok := shown.Extensions["incident"].(string); ok {
			p = p.With("incident", incident)
		}
		return 0, p
	}
	_, long := p.Extra["maxBytes"]
	switch {
	case long:
		return http.StatusRequestEntityTooLarge, p
	case len(p.Field) == 1 && p.Field[0] == "mediaType":
		return http.StatusUnsupportedMediaType, p
	}
	return 0, p
}

// uploaded is the answer to an upload.
type uploaded struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	MediaType string `json:"mediaType"`
	Size      int64  `json:"size"`
	SHA256    string `json:"sha256"`
}

func (a attachments) upload(w http.ResponseWriter, r *http.Request, who authz.Caller) error {
	r.Body = http.MaxBytesReader(w, r.Body, file.MaxBytes+multipartOverhead)
	incoming, err := uploadOf(r)
	if err != nil {
		return err
	}
	stored, err := a.files.Upload(r.Context(), who, incoming)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/attachments/"+stored.ID)
	writeJSON(w, http.StatusCreated, uploaded{ID: stored.ID, Name: stored.Name, MediaType: stored.MediaType, Size: stored.Size, SHA256: stored.Hash})
	return nil
}

// uploadOf reads a request: a form with one file, or the file itself with its type and name in the headers.
func uploadOf(r *http.Request) (file.Upload, error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && kind == "multipart/form-data" {
		return formFile(r, params["boundary"])
	}
	u := file.Upload{MediaType: r.Header.Get("Content-Type"), Body: r.Body}
	if h := r.Header.Get("Content-Disposition"); h != "" {
		_, params, err := mime.ParseMediaType(h)
		if err != nil {
			return u, problem.Field("name", "Content-Disposition is malformed")
		}
		u.Name = params["filename"]
	}
	return u, nil
}

func formFile(r *http.Request, boundary string) (file.Upload, error) {
	if boundary == "" || len(boundary) > 70 { // RFC 2046, 5.1.1
		return file.Upload{}, problem.Field("body", "is a form without a boundary")
	}
	form := multipart.NewReader(r.Body, boundary)
	part, err := form.NextPart()
	if err != nil {
		return file.Upload{}, badForm(err)
	}
	if part.FileName() == "" {
		return file.Upload{}, problem.Field("body", "must be a form with one file and nothing else")
	}
	return file.Upload{Name: part.FileName(), MediaType: part.Header.Get("Content-Type"), Body: &onlyPart{form, part}}, nil
}

// badForm says that a form cannot be read, unless it is only too long.
func badForm(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return err
	}
	return problem.Field("body", "is not a form that can be read").Because(err)
}

// onlyPart reads a form's part, and fails at its end where another follows.
type onlyPart struct {
	form *multipart.Reader
	part *multipart.Part
}

// Read implements io.Reader.
func (o *onlyPart) Read(p []byte) (int, error) {
	n, err := o.part.Read(p)
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, badForm(err)
	}
	switch _, err := o.form.NextPart(); {
	case errors.Is(err, io.EOF):
		return n, io.EOF
	case err != nil:
		return n, badForm(err)
	}
	return n, problem.Field("body", "must be a form with one file and nothing else")
}

// download gives an attachment back as something to be saved, never to be shown as a page.
func (a attachments) download(w http.ResponseWriter, r *http.Request, who authz.Caller) error {
	found, content, err := a.files.Open(r.Context(), who, r.PathValue("id"))
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	h := w.Header()
	h.Set("Content-Type", contentType(found.MediaType))
	h.Set("Content-Length", strconv.FormatInt(found.Size, 10))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": found.Name}))
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	if _, err := io.Copy(w, content); err != nil {
		level := slog.LevelDebug // the client left
		if errors.Is(err, blob.ErrHash) {
			level = slog.LevelError
		}
		a.server.logger.Log(r.Context(), level, "attachment not sent whole", "attachment", found.ID, "error", err)
		// The answer has begun: only an aborted connection tells that it is not whole.
		panic(http.ErrAbortHandler)
	}
	return nil
}

func contentType(mediaType string) string {
	if strings.HasPrefix(mediaType, "text/") {
		return mediaType + "; charset=utf-8"
	}
	return mediaType
}
