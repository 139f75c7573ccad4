package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sys/unix"
)

// Sizes of what the floors write and send: about what a chunk with one text delta takes.
const (
	recordBytes = 600
	frameBytes  = 400
)

// rawFile is the least that durability costs: a write and a wait for the disk.
type rawFile struct {
	file   *os.File
	record []byte
}

func openRawFile(folder string) (*rawFile, error) {
	f, err := os.OpenFile(filepath.Join(folder, "floor.raw"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("failed to make the floor's file: %w", err)
	}
	return &rawFile{file: f, record: bytes.Repeat([]byte("x"), recordBytes)}, nil
}

func (r *rawFile) append() error {
	if _, err := r.file.Write(r.record); err != nil {
		return fmt.Errorf("failed to write the floor's file: %w", err)
	}
	if err := unix.Fdatasync(int(r.file.Fd())); err != nil {
		return fmt.Errorf("failed to sync the floor's file: %w", err)
	}
	return nil
}

func (r *rawFile) close() { _ = r.file.Close() }

// loopback is the least that delivery costs: one WebSocket frame between two ends on this machine.
type loopback struct {
	server *httptest.Server
	far    *websocket.Conn // sends
	near   *websocket.Conn // receives
	frame  []byte
}

func openLoopback() (*loopback, error) {
	far := make(chan *websocket.Conn, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{}
		if c, err := up.Upgrade(w, r, nil); err == nil {
			far <- c
		}
	}))
	near, res, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
	if err != nil {
		server.Close()
		return nil, fmt.Errorf("failed to open the floor's socket: %w", err)
	}
	res.Body.Close()
	return &loopback{server: server, far: <-far, near: near, frame: bytes.Repeat([]byte("x"), frameBytes)}, nil
}

// deliver sends a frame and returns when it arrived.
func (l *loopback) deliver() (time.Time, error) {
	sent := make(chan error, 1)
	go func() { sent <- l.far.WriteMessage(websocket.TextMessage, l.frame) }()
	if _, _, err := l.near.ReadMessage(); err != nil {
		return time.Time{}, fmt.Errorf("failed to read the floor's frame: %w", err)
	}
	at := time.Now()
	return at, <-sent
}

func (l *loopback) close() {
	for _, c := range []*websocket.Conn{l.near, l.far} {
		if tcp, ok := c.NetConn().(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
	l.server.Close()
}
