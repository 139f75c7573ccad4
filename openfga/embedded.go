package openfga

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	openfgav1 "github.com/openfga/api/proto/openfga/v1"
	fgalog "github.com/openfga/openfga/pkg/logger"
	"github.com/openfga/openfga/pkg/middleware"
	fgahttp "github.com/openfga/openfga/pkg/middleware/http"
	"github.com/openfga/openfga/pkg/middleware/recovery"
	"github.com/openfga/openfga/pkg/middleware/validator"
	"github.com/openfga/openfga/pkg/server"
	fgaerrors "github.com/openfga/openfga/pkg/server/errors"
	"github.com/openfga/openfga/pkg/storage/migrate"
	"github.com/openfga/openfga/pkg/storage/sqlcommon"
	"github.com/openfga/openfga/pkg/storage/sqlite"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// Limits of the embedded server.
const (
	// CacheTTL is how long the server may repeat the answer of a check that was not asked for fresh, allowed or denied.
	CacheTTL = 2 * time.Second
	// DefaultRequestTimeout is how long a request may take in the server; clients wait less.
	DefaultRequestTimeout = 10 * time.Second

	cacheEntries = 20_000
	openTimeout  = 2 * time.Second  // for a file that another process holds, or that is no database
	pingTimeout  = 20 * time.Second // for one attempt to open it, on a machine that is slow
	maxBody      = 1 << 20
	pipeBuffer   = 1 << 20
)

// EmbeddedOptions configure an embedded server.
type EmbeddedOptions struct {
	// Path of the SQLite file. It and its folder are created when missing, readable by this user only.
	Path   string
	Logger *slog.Logger // nil: slog.Default(); warnings and errors of the server go there
	// RequestTimeout bounds a request in the server. 0: DefaultRequestTimeout.
	RequestTimeout time.Duration
}

// Embedded is an OpenFGA server in this process. It keeps its tuples in a SQLite file and listens on a loopback port
// that the system chooses; each request must bear a token that is made anew at each start, because other users of the
// machine can reach the port.
type Embedded struct {
	endpoint string
	token    string
	service  *server.Server
	grpc     *grpc.Server
	conn     *grpc.ClientConn
	http     *http.Server
	stop     context.CancelFunc
	served   sync.WaitGroup
	close    sync.Once
	closed   error
}

// opening guards the global state of the migration library, which opening a datastore touches too.
var opening sync.Mutex

// StartEmbedded migrates the file and starts a server on it. Close must be called. ctx bounds the start only.
func StartEmbedded(ctx context.Context, o EmbeddedOptions) (_ *Embedded, err error) {
	if o.Path == "" {
		return nil, errors.New("openfga: the embedded server needs a path")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = DefaultRequestTimeout
	}
	log := newLogger(o.Logger)
	uri, err := prepareFile(o.Path)
	if err != nil {
		return nil, fmt.Errorf("failed to prepare authorization database: %w", err)
	}
	datastore, err := openDatastore(ctx, uri, log)
	if err != nil {
		return nil, err
	}
	service, err := server.NewServerWithOpts(
		server.WithDatastore(datastore),
		server.WithContinuationTokenSerializer(sqlcommon.NewSQLContinuationTokenSerializer()),
		server.WithLogger(log),
		server.WithListObjectsPipelineEnabled(true),
		server.WithCheckQueryCacheEnabled(true),
		server.WithCheckCacheLimit(cacheEntries),
		server.WithCheckQueryCacheTTL(CacheTTL),
		server.WithMaxChecksPerBatchCheck(maxBatch),
		server.WithRequestTimeout(o.RequestTimeout),
	)
	if err != nil {
		datastore.Close()
		return nil, fmt.Errorf("failed to make authorization server: %w", err)
	}
	e := &Embedded{service: service, token: rand.Text()}
	if err := e.serve(log, o); err != nil {
		return nil, errors.Join(fmt.Errorf("failed to serve authorization: %w", err), e.Close(context.WithoutCancel(ctx)))
	}
	return e, nil
}

func openDatastore(ctx context.Context, uri string, log fgalog.Logger) (*sqlite.Datastore, error) {
	opening.Lock()
	defer opening.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("failed to open authorization database: %w", err)
	}
	err := migrate.RunMigrations(migrate.MigrationConfig{Engine: "sqlite", URI: uri, Timeout: openTimeout, PingTimeout: pingTimeout, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("failed to migrate authorization database: %w", err)
	}
	datastore, err := sqlite.New(uri, sqlcommon.NewConfig(sqlcommon.WithLogger(log)))
	if err != nil {
		return nil, fmt.Errorf("failed to open authorization database: %w", err)
	}
	return datastore, nil
}

// Endpoint is the server's URL, for instance "http://127.0.0.1:40123".
func (e *Embedded) Endpoint() string { return e.endpoint }

// Token is the bearer token that the server asks for. It is a secret.
func (e *Embedded) Token() string { return e.token }

// Close ends the server: it lets requests finish until ctx ends, then cuts them. It is safe to call it again.
func (e *Embedded) Close(ctx context.Context) error {
	e.close.Do(func() {
		if e.http != nil {
			if err := e.http.Shutdown(ctx); err != nil {
				e.closed = errors.Join(fmt.Errorf("failed to end authorization requests: %w", err), e.http.Close())
			}
		}
		if e.conn != nil {
			e.closed = errors.Join(e.closed, e.conn.Close())
		}
		if e.stop != nil {
			e.stop()
		}
		if e.grpc != nil {
			e.grpc.Stop()
		}
		e.served.Wait()
		e.service.Close()
	})
	return e.closed
}

// serve puts the service behind gRPC on a pipe in memory, and the HTTP gateway before that.
func (e *Embedded) serve(log fgalog.Logger, o EmbeddedOptions) error {
	pipe := bufconn.Listen(pipeBuffer)
	e.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(maxBody),
		grpc.ChainUnaryInterceptor(
			recoverPanic(log),
			middleware.NewTimeoutInterceptor(o.RequestTimeout, log).NewUnaryTimeoutInterceptor(),
			validator.UnaryServerInterceptor(),
		),
	)
	openfgav1.RegisterOpenFGAServiceServer(e.grpc, e.service)
	e.served.Go(func() {
		if err := e.grpc.Serve(pipe); err != nil {
			o.Logger.Error("authorization service ended", "error", err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///embedded",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		return fmt.Errorf("failed to connect: %w", err)
	}
	e.conn = conn
	mux := runtime.NewServeMux(
		runtime.WithForwardResponseOption(fgahttp.HTTPResponseModifier),
		runtime.WithErrorHandler(func(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
			code := fgaerrors.ConvertToEncodedErrorCode(status.Convert(err))
			fgahttp.CustomHTTPErrorHandler(ctx, w, r, fgaerrors.NewEncodedError(code, err.Error()))
		}),
	)
	ctx, cancel := context.WithCancel(context.Background())
	e.stop = cancel
	if err := openfgav1.RegisterOpenFGAServiceHandler(ctx, mux, conn); err != nil {
		return fmt.Errorf("failed to register gateway: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("failed to listen: %w", err)
	}
	e.endpoint = "http://" + listener.Addr().String()
	e.http = &http.Server{
		Handler:           recovery.HTTPPanicRecoveryHandler(e.authenticate(mux), log),
		ReadHeaderTimeout: o.RequestTimeout,
		ReadTimeout:       2 * o.RequestTimeout,
		WriteTimeout:      3 * o.RequestTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
	}
	e.served.Go(func() {
		if err := e.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("authorization gateway ended", "error", err)
		}
	})
	return nil
}

// authenticate lets requests with the token pass. Digests are compared, so neither content nor length shows in time.
func (e *Embedded) authenticate(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(e.token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(bearer))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 || !ok {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"code":"unauthenticated","message":"bearer token required"}`))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

func recoverPanic(log fgalog.Logger) grpc.UnaryServerInterceptor {
	answer := recovery.PanicRecoveryHandler(log)
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (_ any, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = answer(ctx, p)
			}
		}()
		return handle(ctx, req)
	}
}

// prepareFile makes the file, private to this user (SQLite gives its side files the same mode), and returns its URI.
func prepareFile(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return "", err
	}
	// The server cuts the URI at its first "?", and the driver undoes percent escapes of a file: URI.
	u := url.URL{Scheme: "file", Path: path}
	q := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(2000)"}, "_txlock": {"immediate"}}
	return u.String() + "?" + q.Encode(), nil
}
