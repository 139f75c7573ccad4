package ws

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/resolvers"
)

// operation is one subscribe message and what becomes of it. It is one of two kinds: it runs on a goroutine and sends,
// or, once it has a feed, it belongs to the socket's writer, which polls it.
type operation struct {
	k    *socket
	over atomic.Bool // nothing more may be sent; set once, by whoever ends it, with the socket's mu held

	// Of the socket's mu. What each delivery looks at stands first, as in socket.
	queued   bool // it is in the socket's ready
	gone     bool // it has been let go
	renewing bool
	starved  bool // it had its turn without a permission
	finite   bool // it counts as one that ends by itself
	feed     resolvers.Feed
	until    time.Time // of the feed, as of its last renewal
	failure  *gqlerror.Error

	// Of the writer.
	state   bool    // the feed is a resolvers.StateFeed, which makes what it shows when it is polled
	follows bool    // it had all there was at its last turn
	held    []entry // what waits for a permission

	rawID  []byte
	little [8]byte // room for rawID

	// Of the socket's mu as well.
	id      string
	cancel  context.CancelFunc // of what runs on a goroutine; nil for a feed
	renewAt time.Time
	final   []byte // the last frame, where there was no room for it
	size    int    // bytes of the message, while something of it is held
}

// subscribe begins an operation. It reports whether it kept the buffer.
func (k *socket) subscribe(m message, buffer *[]byte) (kept bool) {
	k.mu.Lock()
	switch {
	case k.phase < phaseReady:
		k.failing(CloseUnauthorized, "Unauthorized", errClosed)
	case k.expired(time.Now()):
	case k.draining: // it has not begun: the client sends it again where it comes back
	case k.ops[m.id] != nil:
		k.failing(CloseDuplicateID, "Subscriber for this id already exists", errClosed)
	case k.phase >= phaseClosing:
	case k.working >= k.s.o.Limits.MaxOps:
		k.mu.Unlock()
		k.refuse(m, problem.New(problem.RateLimited, "a connection carries at most %d operations at once", k.s.o.Limits.MaxOps))
		return false
	case k.held+len(*buffer) > k.mostHeld() || !k.s.o.Messages.Take(k.who, len(*buffer)):
		k.mu.Unlock()
		k.refuse(m, problem.New(problem.RateLimited, "the messages of operations at once have at most %d bytes on a connection, and together no more than a caller may have", k.mostHeld()))
		return false
	default:
		op := &operation{k: k, id: m.id, finite: true, size: len(*buffer)}
		op.rawID = append(op.little[:0], m.rawID...)
		k.held += op.size
		if k.ops == nil {
			k.ops = map[string]*operation{}
		}
		k.ops[m.id] = op
		k.working++
		k.finite++
		k.refs++
		var ctx context.Context
		ctx, op.cancel = context.WithCancel(k.ctx)
		k.mu.Unlock()
		k.s.o.Execute.Go(k.who, func() { op.start(ctx, m.payload, buffer) })
		return true
	}
	k.mu.Unlock()
	return false
}

// mostHeld is how many bytes of messages the operations of a socket hold at most: of each its own as long as it waits and
// is executed, for the documents and variables that come of it are about as long, or longer.
func (k *socket) mostHeld() int { return heldMessages * k.s.o.Limits.MaxMessage }

// refuse answers an operation that is not begun.
func (k *socket) refuse(m message, p *problem.Error) {
	k.send(errorFrame(m.rawID, gqlerror.List{k.s.o.API.Present(k.ctx, p)}))
}

// start reads the request and executes it.
func (op *operation) start(ctx context.Context, payload []byte, buffer *[]byte) {
	k, api := op.k, op.k.s.o.API
	streams := false
	defer func() {
		p := recover()
		if p != nil {
			op.conclude(errorFrame(op.rawID, gqlerror.List{api.Present(ctx, api.Recover(ctx, p))}))
		}
		if !streams {
			op.leave()
		}
	}()
	if ctx.Err() != nil { // it was ended while it waited
		k.recycle(buffer)
		return
	}
	r, err := parseRequest(payload)
	k.recycle(buffer)
	if err != nil {
		k.fail(CloseBadRequest, err.Error())
		return
	}
	ctx = graphql.StartOperationTrace(ctx)
	now := graphql.Now()
	rc, errs := k.exec.CreateOperationContext(ctx, &graphql.RawParams{
		Query: r.query, OperationName: r.operation, Variables: r.variables, Extensions: r.extensions,
		ReadTime: graphql.TraceTiming{Start: graphql.GetStartTime(ctx), End: now},
	})
	if len(errs) > 0 {
		op.conclude(errorFrame(op.rawID, k.exec.DispatchError(graphql.WithOperationContext(ctx, rc), errs).Errors))
		return
	}
	if rc.Operation.Operation != ast.Subscription {
		op.run(ctx, rc)
		return
	}
	feed, ok, err := api.OpenFeed(ctx, rc, "")
	switch {
	case err != nil:
		op.conclude(errorFrame(op.rawID, presented(ctx, api, err)))
	case ok:
		streams = true
		op.follow(feed)
	default:
		streams = true
		op.unbounded()
		go func() {
			defer op.leave()
			defer func() {
				if p := recover(); p != nil {
					op.conclude(errorFrame(op.rawID, gqlerror.List{api.Present(ctx, api.Recover(ctx, p))}))
				}
			}()
			op.run(ctx, rc)
		}()
	}
}

// presented is an error as a client sees it.
func presented(ctx context.Context, api API, err error) gqlerror.List {
	var list gqlerror.List
	if errors.As(err, &list) && len(list) > 0 {
		return list
	}
	var one *gqlerror.Error
	if errors.As(err, &one) {
		return gqlerror.List{one}
	}
	return gqlerror.List{api.Present(ctx, err)}
}

// run executes the operation in the ordinary way and sends what comes. A response without data is the end, an error of
// the request.
func (op *operation) run(ctx context.Context, rc *graphql.OperationContext) {
	responses, ctx := op.k.exec.DispatchOperation(graphql.WithOperationContext(ctx, rc), rc)
	for {
		resp := responses(ctx)
		switch {
		case resp == nil:
			op.conclude(appendComplete(nil, op.rawID))
			return
		case len(resp.Data) == 0 && len(resp.Errors) > 0:
			op.conclude(errorFrame(op.rawID, resp.Errors))
			return
		}
		payload, err := json.Marshal(resp)
		if err != nil {
			op.conclude(errorFrame(op.rawID, gqlerror.List{op.k.s.o.API.Present(ctx, err)}))
			return
		}
		frame := appendMessage(make([]byte, 0, maxFrameHeader+messageOverhead+len(op.rawID)+len(typeNext)+len(payload)+64), op.rawID, typeNext, payload)
		if rc.Operation.Operation != ast.Subscription {
			op.conclude(appendComplete(frame, op.rawID))
			return
		}
		if !op.send(frame) {
			return
		}
	}
}

// send hands a frame to the writer. It waits for room; false: the operation is over.
func (op *operation) send(frame []byte) bool {
	op.k.mu.Lock()
	defer op.k.mu.Unlock()
	return op.k.owe(len(frame)) && op.room(len(frame)) && op.k.putAnswer(frame)
}

// room waits for room for an answer that is owed; false: the client has ended the operation meanwhile, its id may be
// another's, and the answer is not owed any more. mu is held.
func (op *operation) room(owed int) bool {
	for op.k.full() && !op.over.Load() {
		op.k.room.Wait()
	}
	if op.over.Load() {
		op.k.paid(owed)
		return false
	}
	return true
}

// conclude sends the operation's last frame, unless the client has ended it. Where there is no room, leave waits for it.
func (op *operation) conclude(frame []byte) {
	op.k.mu.Lock()
	defer op.k.mu.Unlock()
	if !op.k.owe(len(frame)) {
		return
	}
	if op.final = frame; !op.k.full() {
		op.say()
	}
}

// say sends the last frame. Only with that the id is free: before, the client cannot know that the operation is over. mu
// is held.
func (op *operation) say() {
	frame := op.final
	op.final = nil
	if !op.ending() {
		op.k.paid(len(frame))
		return
	}
	op.k.putAnswer(frame)
}

// leave lets the operation go when its last frame has found room. Waiting for that is not for the goroutines that
// execute operations: they are few.
func (op *operation) leave() {
	op.k.mu.Lock()
	waits := op.final != nil
	op.k.mu.Unlock()
	if !waits {
		op.let()
		return
	}
	go func() {
		op.k.mu.Lock()
		for op.k.full() && !op.over.Load() {
			op.k.room.Wait()
		}
		op.say()
		op.k.mu.Unlock()
		op.let()
	}()
}

// end takes the right to say the last word; false: somebody else has it.
func (op *operation) end() bool {
	op.k.mu.Lock()
	defer op.k.mu.Unlock()
	return op.ending()
}

// ending is end; mu is held.
func (op *operation) ending() bool {
	if !op.over.CompareAndSwap(false, true) {
		return false
	}
	if op.k.ops[op.id] == op {
		delete(op.k.ops, op.id)
	}
	return true
}

// stop ends the operation without a word: the client, or the connection, has ended it. The socket's mu is held, and the
// operation has no id any more.
func (op *operation) stop() {
	op.over.Store(true)
	if op.cancel != nil {
		op.cancel()
	}
	op.k.room.Broadcast() // it does not wait any more
	op.want()
}

// unbounded says that the operation does not end by itself.
func (op *operation) unbounded() {
	op.k.mu.Lock()
	defer op.k.mu.Unlock()
	op.endless()
}

// endless is unbounded; mu is held.
func (op *operation) endless() {
	if op.finite {
		op.finite = false
		op.k.finite--
		op.k.drained()
	}
}

// let lets the operation go: it makes room for another.
func (op *operation) let() {
	k := op.k
	k.mu.Lock()
	if op.cancel != nil {
		op.cancel()
	}
	op.gone = true
	op.forget()
	op.endless()
	k.working--
	k.mu.Unlock()
	k.done()
}

// forget says that the operation holds nothing of its message any more. mu is held.
func (op *operation) forget() {
	op.k.held -= op.size
	op.k.s.o.Messages.Give(op.k.who, op.size)
	op.size = 0
}

// errorFrame is the message that ends an operation with errors.
func errorFrame(rawID []byte, errs gqlerror.List) []byte {
	payload, err := json.Marshal(errs)
	if err != nil { // extensions are scalars
		payload = []byte(`[{"message":"internal error","extensions":{"code":"INTERNAL"}}]`)
	}
	return appendMessage(nil, rawID, typeError, payload)
}
