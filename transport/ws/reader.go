package ws

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/gorilla/websocket"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/resolvers"
)

// read is the goroutine that reads the socket to its end.
func (k *socket) read() {
	defer k.finish()
	k.conn.SetReadLimit(int64(k.s.o.Limits.MaxMessage))
	k.conn.SetPongHandler(func(string) error { k.heard.Store(true); return nil })
	k.conn.SetPingHandler(func(data string) error {
		k.heard.Store(true)
		k.send(appendControl(nil, opPong, data))
		return nil
	})
	k.conn.SetCloseHandler(k.answerClose)
	for {
		kind, r, err := k.conn.NextReader()
		if err != nil {
			k.unreadable(err)
			return
		}
		k.heard.Store(true)
		if k.leaving() {
			continue // NextReader passes over the rest
		}
		if kind != websocket.TextMessage {
			k.fail(CloseBadRequest, "a message must be text")
			continue
		}
		buffer := k.s.messages.Get().(*[]byte)
		raw, err := k.receive(r, (*buffer)[:0])
		*buffer = raw
		if err != nil || !k.take(buffer) {
			k.recycle(buffer)
		}
		if err != nil && !errors.Is(err, errTooLong) {
			k.unreadable(err)
			return
		}
	}
}

// leaving reports whether what comes does not matter any more.
func (k *socket) leaving() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.phase >= phaseClosing
}

var errTooLong = errors.New("the message is too long")

// receive reads one message into b. Who is not known yet gets less room, and what all of a caller's messages take is
// bounded while they come in, too.
func (k *socket) receive(r io.Reader, b []byte) ([]byte, error) {
	held := maxPooled
	var who authz.Caller
	defer func() { k.s.o.Messages.Give(who, held-maxPooled) }()
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
			if more := cap(b) - held; more > 0 {
				who = k.caller()
				if !k.s.o.Messages.Take(who, more) {
					k.fail(CloseTryAgain, reasonMuch)
					return b, errTooLong
				}
				held += more
			}
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		k.heard.Store(true) // a long message on a slow line
		if len(b) > k.s.o.Limits.MaxInit && k.unknown() {
			k.fail(CloseTooBig, errTooLong.Error())
			return b, errTooLong
		}
		switch {
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return b, err
		}
	}
}

// caller is who has sent connection_init; zero before.
func (k *socket) caller() authz.Caller {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.who
}

func (k *socket) unknown() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.phase < phaseReady
}

// recycle keeps a buffer for another message.
func (k *socket) recycle(b *[]byte) {
	if cap(*b) <= maxPooled {
		k.s.messages.Put(b)
	}
}

// take acts upon a message. It reports whether it kept the buffer.
func (k *socket) take(buffer *[]byte) (kept bool) {
	m, err := k.parse(*buffer)
	if err != nil {
		k.fail(CloseBadRequest, err.Error())
		return false
	}
	switch m.kind {
	case typePing:
		if len(m.payload) > maxPong {
			m.payload = nil
		}
		k.send(appendSole(nil, typePong, m.payload))
	case typePong: // it was heard
	case typeInit:
		k.init(m)
	case typeSubscribe:
		return k.subscribe(m, buffer)
	case typeComplete:
		k.mu.Lock()
		if op := k.ops[m.id]; op != nil {
			delete(k.ops, m.id)
			op.stop()
		}
		k.mu.Unlock()
	}
	return false
}

// parse is parseMessage, whose mistakes must not end the process.
func (k *socket) parse(raw []byte) (m message, err error) {
	defer func() {
		if p := recover(); p != nil {
			_ = k.s.o.API.Recover(context.Background(), p) // logs it
			err = errNotJSON
		}
	}()
	return parseMessage(raw, k.s.o.Limits.MaxDepth)
}

// unreadable is called when the connection gives no more messages. Where the other side does not know it yet, it is let
// read the close frame: a connection that is closed before all was read is reset, and the frame lost.
func (k *socket) unreadable(err error) {
	k.mu.Lock()
	told := k.phase == phaseClosed // by our own frame, upon which the other side has had its time
	if k.phase < phaseClosed {
		k.phase = phaseClosed // gorilla has sent a frame, or nobody is there to read one
		k.cancel(errClosed)
		k.room.Broadcast()
	}
	k.mu.Unlock()
	var closed *websocket.CloseError
	if told || errors.As(err, &closed) {
		return
	}
	_ = k.net.SetReadDeadline(time.Now().Add(linger))
	_, _ = io.CopyN(io.Discard, k.net, lingering)
}

// answerClose answers the other side's close frame, unless it answers ours.
func (k *socket) answerClose(code int, _ string) error {
	k.mu.Lock()
	answer := k.phase < phaseClosed
	k.mu.Unlock()
	if !answer {
		return nil
	}
	if code == websocket.CloseNoStatusReceived {
		code = websocket.CloseNormalClosure
	}
	_ = k.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(linger))
	return nil
}

// init takes connection_init. Who it is is found out beside the reader.
func (k *socket) init(m message) {
	payload := bytes.Clone(m.payload)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.phase != phaseOpen {
		k.failing(CloseTooManyInits, "Too many initialisation requests", errClosed)
		return
	}
	k.phase = phaseGreeting
	k.refs++
	k.s.greet.Go(struct{}{}, func() {
		defer k.done()
		k.greet(payload)
	})
}

// greet acknowledges the connection of whoever is known: by the payload of connection_init, else by the upgrade request.
func (k *socket) greet(payload []byte) {
	ctx, cancel := context.WithTimeout(k.ctx, k.s.o.Limits.InitTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			_ = k.s.o.API.Recover(ctx, p) // logs it
			k.fail(websocket.CloseInternalServerErr, "internal error")
		}
	}()
	who := k.known
	var p *problem.Error
	if authorization, given := parseInit(payload); given {
		var found Identity
		found, p = k.s.o.Identify(ctx, authorization)
		who = &found
	}
	switch {
	case p != nil && p.Code != problem.Unauthenticated:
		k.fail(CloseTryAgain, p.Message) // a client that is not to blame comes back
		return
	case p != nil:
		k.fail(CloseForbidden, p.Message)
		return
	case who == nil:
		k.fail(CloseForbidden, "authentication required")
		return
	}
	k.s.known(k)
	// The place of somebody unknown becomes one of the caller's.
	k.mu.Lock()
	unknown := k.release
	k.release = nil
	k.mu.Unlock()
	if unknown == nil {
		return // the connection is gone
	}
	unknown()
	release, p := k.s.o.Take(who.Caller)
	if p != nil {
		k.fail(CloseTryAgain, p.Message)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.phase == phaseDead {
		release()
		return
	}
	k.release, k.known = release, nil
	if k.phase != phaseGreeting {
		return
	}
	k.phase = phaseReady
	k.ctx = resolvers.WithStream(authz.WithCaller(k.ctx, who.Caller), resolvers.StreamFrames)
	k.who, k.expires = who.Caller, who.Expires
	k.arm(k.expires)
	k.enqueue(appendSole(nil, typeAck, nil))
	k.rouse()
}
