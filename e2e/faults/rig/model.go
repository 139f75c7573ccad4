package rig

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/harness-engine/harness-engine/internal/fakemodel"
)

// model is the provider that the engines' model calls go to. Unlike the engine's own fake it outlives every engine, as a
// provider does.
type model struct {
	proxy  *proxy
	server *http.Server
}

func newModel() (*model, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("failed to start model: %w", err)
	}
	m := &model{server: &http.Server{Handler: fakemodel.New(fakemodel.Options{DeltaDelay: 10 * time.Millisecond}), ReadHeaderTimeout: time.Minute}}
	if m.proxy, err = newProxy(l.Addr().String()); err != nil {
		return nil, errors.Join(fmt.Errorf("failed to start model: %w", err), l.Close())
	}
	go func() { _ = m.server.Serve(l) }()
	return m, nil
}

// environment makes an engine call this model.
func (m *model) environment() []string {
	return []string{
		"ANTHROPIC_API_KEY=not-a-key", "ANTHROPIC_BASE_URL=" + m.proxy.url(),
		"OPENAI_API_KEY=not-a-key", "OPENAI_BASE_URL=" + m.proxy.url() + "/v1",
	}
}

func (m *model) close() {
	_ = m.server.Close()
	m.proxy.close()
}
