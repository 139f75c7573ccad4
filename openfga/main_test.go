package openfga_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/openfga"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs an embedded server on a file of its own and a client on it.
func start(t testing.TB) (*openfga.Embedded, *openfga.Client) {
	t.Helper()
	server := startOn(t, filepath.Join(t.TempDir(), "authz.db"))
	return server, connect(t, server)
}

func startOn(t testing.TB, path string) *openfga.Embedded {
	t.Helper()
	server, err := openfga.StartEmbedded(t.Context(), openfga.EmbeddedOptions{Path: path, RequestTimeout: patience, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server
}

// patience is the timeout of clients whose server is to answer: the race detector makes SQLite many times slower.
const patience = time.Minute

func connect(t testing.TB, server *openfga.Embedded) *openfga.Client {
	t.Helper()
	client, err := openfga.NewClient(t.Context(), openfga.ClientOptions{
		Endpoint: server.Endpoint(), Token: server.Token(), Timeout: patience, Logger: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func tuple(user, relation, object string) authz.Tuple {
	return authz.Tuple{User: user, Relation: relation, Object: object}
}

func apply(t testing.TB, client *openfga.Client, object authz.Object, tuples ...authz.Tuple) {
	t.Helper()
	if err := client.Apply(t.Context(), object, tuples); err != nil {
		t.Fatal(err)
	}
}

func allowed(t testing.TB, client *openfga.Client, check authz.Check) bool {
	t.Helper()
	ok, err := client.Check(t.Context(), check)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}
