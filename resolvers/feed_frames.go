package resolvers

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	frameBytes = 32 << 20        // of all frames that are kept
	frameAge   = 5 * time.Second // how long a frame is kept
	frameCost  = 256             // bytes that a frame takes beside its payload, about
)

// hotFrames is how many frames are found without the lock. Those who follow a run all want the newest at once.
const hotFrames = 256

// frameKey names a delivery: its content follows from it, for the log does not change.
type frameKey struct {
	runID          string
	first, through int64
	caughtUp       bool // false where the form does not show it
	form           *form
}

// place is where the frame may be among the hot ones.
func (k *frameKey) place() uint64 {
	h := uint64(k.first)*0x9e3779b97f4a7c15 ^ uint64(k.through)*0xff51afd7ed558ccd ^ uint64(len(k.runID))<<32
	if n := len(k.runID); n > 0 { // ids differ at their ends
		h ^= uint64(k.runID[n-1])<<40 ^ uint64(k.runID[n/2])<<48
	}
	return (h ^ h>>29) * 0xbf58476d1ce4e5b9 >> (64 - 8)
}

// frame is one encoded delivery. It is made by the first who needs it; the others wait for that.
type frame struct {
	key   frameKey
	at    time.Time
	once  sync.Once
	item  Item
	err   error
	size  int64
	stale bool // it is not among the kept frames
}

// frames keeps encoded deliveries for a short while, so that those who follow the same events share them. What readers
// hold in their hands is theirs: dropping a frame takes it from nobody.
type frames struct {
	hot [hotFrames]atomic.Pointer[frame] // some of the known ones, found without the lock

	mu    sync.Mutex
	known map[frameKey]*frame
	order []*frame // by age, the oldest first
	bytes int64
	sweep *time.Timer // runs while there are frames
}

func newFrames() *frames { return &frames{known: map[frameKey]*frame{}} }

// get returns the frame of the key, made by write unless it is there.
func (fs *frames) get(key frameKey, write func() (Item, error)) (*frame, error) {
	hot := &fs.hot[key.place()]
	if f := hot.Load(); f != nil && f.key == key {
		return f, nil
	}
	fs.mu.Lock()
	f := fs.known[key]
	if f == nil {
		f = &frame{key: key, at: time.Now()}
		fs.known[key] = f
		fs.order = append(fs.order, f)
		if fs.sweep == nil {
			fs.sweep = time.AfterFunc(frameAge, fs.age)
		}
	}
	fs.mu.Unlock()
	f.once.Do(func() {
		f.err = errUnwritten // of a write that panics
		f.item, f.err = write()
		fs.written(f, hot)
	})
	return f, f.err
}

// written counts a frame, and lets the oldest go where there are too many bytes.
func (fs *frames) written(f *frame, hot *atomic.Pointer[frame]) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.size = int64(len(f.item.Payload)) + frameCost
	if f.stale {
		return
	}
	if f.err != nil {
		delete(fs.known, f.key)
	} else {
		hot.Store(f)
	}
	for fs.bytes += f.size; fs.bytes > frameBytes && len(fs.order) > 0; {
		fs.dropOldest()
	}
}

// dropOldest is for holders of the lock.
func (fs *frames) dropOldest() {
	f := fs.order[0]
	fs.order[0] = nil
	fs.order = fs.order[1:]
	fs.bytes -= f.size // 0 while it is being written
	f.stale = true
	if fs.known[f.key] == f {
		delete(fs.known, f.key)
	}
	fs.hot[f.key.place()].CompareAndSwap(f, nil)
}

// age drops what is old, again and again until nothing is left.
func (fs *frames) age() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	now := time.Now()
	for len(fs.order) > 0 && now.Sub(fs.order[0].at) >= frameAge {
		fs.dropOldest()
	}
	if len(fs.order) == 0 {
		fs.order, fs.sweep = nil, nil
		return
	}
	fs.sweep = time.AfterFunc(frameAge-now.Sub(fs.order[0].at), fs.age)
}
