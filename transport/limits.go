package transport

import "time"

// Limits of the edge; a zero field takes the default.
type Limits struct {
	MaxBodyBytes      int64         // of a request and of a WebSocket message; default 1 MiB
	MaxHeaderBytes    int           // of a request's line and headers; default 32 KiB
	MaxBodyDepth      int           // nesting of a request's JSON; default 64
	MaxTokens         int           // lexical tokens of a document; default 4,000
	MaxDepth          int           // levels of an operation's selections; default 20
	MaxFields         int           // fields that an operation selects, fragments spread out; default 2,000
	MaxComplexity     int           // cost of an operation, lists by page size; default 10,000
	ReadTimeout       time.Duration // to receive a whole request; default 30 s
	OperationTimeout  time.Duration // of a query or mutation; default 30 s
	InitTimeout       time.Duration // for connection_init; default 10 s
	WriteTimeout      time.Duration // for one WebSocket message to a slow reader; default 10 s
	PingInterval      time.Duration // of comments on event streams; default 10 s
	SocketPing        time.Duration // of pings on WebSockets, and to answer one; default 12 s
	MaxSockets        int           // streams at once, WebSockets and event streams; default 10,000
	MaxCallerStreams  int           // of them one caller's; default 1,000
	MaxSocketOps      int           // operations at once on one WebSocket; default 100
	MaxExecuting      int           // operations that are executed at once, others wait; default 256
	MaxCallerActive   int           // of them one caller's; default 32
	MaxCallerRequests int           // HTTP requests of one caller in work at once, streams aside; default 2,048
	MaxHeld           int64         // bytes of requests and messages that are held at once; default 256 MiB
	MaxCallerHeld     int64         // of them one caller's; default 32 MiB
	MaxUnread         int64         // bytes of answers that are not written yet; default 256 MiB
	MaxCallerUnread   int64         // of them one caller's; default 64 MiB
	MaxSocketUnread   int           // of them one WebSocket's; default 16 MiB
	MaxConnections    int           // connections at once, whatever they carry; default MaxSockets and 2,048
	DrainSpread       time.Duration // the most over which a drain spreads the closing of WebSockets; default 5 s
	DrainTimeout      time.Duration // the most that it waits for queries and mutations on them; default 10 s
	MaxQueryCache     int           // parsed documents kept; default 500
	MaxCachedQuery    int           // longest document that is kept, bytes; default 16 KiB
	ReadinessTimeout  time.Duration // of all readiness checks together; default 2 s
	ReadinessCacheFor time.Duration // how long an answer of them is given again; default 1 s
}

func (l Limits) withDefaults() Limits {
	count := func(n *int, to int) {
		if *n <= 0 {
			*n = to
		}
	}
	wait := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	size := func(n *int64, to int64) {
		if *n <= 0 {
			*n = to
		}
	}
	size(&l.MaxBodyBytes, 1<<20)
	count(&l.MaxHeaderBytes, 32<<10)
	count(&l.MaxBodyDepth, 64)
	count(&l.MaxTokens, 4000)
	count(&l.MaxDepth, 20)
	count(&l.MaxFields, 2000)
	count(&l.MaxComplexity, 10_000)
	wait(&l.ReadTimeout, 30*time.Second)
	wait(&l.OperationTimeout, 30*time.Second)
	wait(&l.InitTimeout, 10*time.Second)
	wait(&l.WriteTimeout, 10*time.Second)
	wait(&l.PingInterval, 10*time.Second)
	count(&l.MaxSockets, 10_000)
	count(&l.MaxCallerStreams, 1000)
	count(&l.MaxSocketOps, 100)
	wait(&l.SocketPing, 12*time.Second)
	count(&l.MaxExecuting, 256)
	count(&l.MaxCallerActive, 32)
	count(&l.MaxCallerRequests, 2048)
	size(&l.MaxHeld, 256<<20)
	size(&l.MaxCallerHeld, 32<<20)
	size(&l.MaxUnread, 256<<20)
	size(&l.MaxCallerUnread, 64<<20)
	count(&l.MaxSocketUnread, 16<<20)
	count(&l.MaxConnections, l.MaxSockets+2048)
	wait(&l.DrainSpread, 5*time.Second)
	wait(&l.DrainTimeout, 10*time.Second)
	count(&l.MaxQueryCache, 500)
	count(&l.MaxCachedQuery, 16<<10)
	wait(&l.ReadinessTimeout, 2*time.Second)
	wait(&l.ReadinessCacheFor, time.Second)
	return l
}
