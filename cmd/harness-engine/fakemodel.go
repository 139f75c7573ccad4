package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/harness-engine/harness-engine/broker"
	"github.com/harness-engine/harness-engine/internal/fakemodel"
)

// fakeModel serves the project's own fake of the model providers on a loopback port, for demonstrations without a key
// and for tests.
type fakeModel struct {
	url    string
	server *http.Server
}

// fakeKey is what the fake is called with: it proves nothing, and hides nothing.
const fakeKey = "fake-model-key"

func startFakeModel() (*fakeModel, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("failed to listen for the fake model: %w", err)
	}
	f := &fakeModel{url: "http://" + l.Addr().String(), server: &http.Server{Handler: fakemodel.New(fakemodel.Options{}), ReadHeaderTimeout: 10 * time.Second}}
	go func() { _ = f.server.Serve(l) }()
	return f, nil
}

func (f *fakeModel) upstreams() map[string]broker.Upstream {
	return map[string]broker.Upstream{
		broker.ProviderAnthropic: {BaseURL: f.url, Key: fakeKey},
		broker.ProviderOpenAI:    {BaseURL: f.url + "/v1", Key: fakeKey},
	}
}

func (f *fakeModel) close(context.Context) error { return f.server.Close() }
