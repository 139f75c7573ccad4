package session

import "slices"

// Queued is the run's place in the queue from 0, or -1.
func (b Binding) Queued(run string) int {
	return slices.IndexFunc(b.Queue, func(q Queued) bool { return q.Run == run })
}

// ahead is the run that a refused one would have to wait for.
func (b Binding) ahead() string {
	if b.Active != nil {
		return b.Active.Run
	}
	return b.Queue[0].Run
}

// activate makes the run active under the next lease generation. For n, a revision in the making, only.
func (n *Binding) activate(q Queued, owner string) {
	if n.AgentVersion == 0 {
		n.AgentVersion, n.Harness = q.Pin.AgentVersion, q.Pin.Harness
	}
	n.LeaseGen++
	n.Active = &Active{Run: q.Run, Ord: n.NextOrd, Epoch: n.Epoch, Pin: Pin{n.AgentVersion, n.Harness}, Gen: n.LeaseGen, Owner: owner}
	n.NextOrd++
}

// activateNext gives the free conversation to the head of the queue. An interrupt that waits for a decision holds the
// queue up, unless its head is urgent: then it is superseded.
func (n *Binding) activateNext(owner string) {
	if n.Active != nil || len(n.Queue) == 0 || n.Pending != nil && !n.Queue[0].Urgent {
		return
	}
	if n.Pending != nil {
		n.settle(Superseded)
	}
	head := n.Queue[0]
	n.Queue = slices.Clone(n.Queue[1:])
	if len(n.Queue) == 0 {
		n.Queue = nil
	}
	n.activate(head, owner)
}

// Dropped is a run that was taken off the queue and still has to log its start and its end, under this lease.
type Dropped struct {
	Lease
	Ord   int64
	Epoch int64
	Pin   Pin
}

// CancelQueued takes a run off the queue. ErrUnchanged when it is not there.
func CancelQueued(b Binding, run string, op Op) (Binding, Dropped, error) {
	i := b.Queued(run)
	if i < 0 {
		return b, Dropped{}, ErrUnchanged
	}
	n := b.next(op)
	n.Queue = slices.Delete(slices.Clone(b.Queue), i, i+1)
	if len(n.Queue) == 0 {
		n.Queue = nil
	}
	return n, n.drop(b.Queue[i]), nil
}

// drop gives a run that will not be activated its order and a lease generation of its own.
func (n *Binding) drop(q Queued) Dropped {
	n.LeaseGen++
	d := Dropped{Lease: Lease{Run: q.Run, Gen: n.LeaseGen}, Ord: n.NextOrd, Epoch: n.Epoch, Pin: q.Pin}
	if n.AgentVersion != 0 {
		d.Pin = Pin{n.AgentVersion, n.Harness}
	}
	n.NextOrd++
	return d
}

// Drop gives a run that is in no queue any more, and has not ended, an order and a lease generation to end it under.
func Drop(b Binding, q Queued, op Op) (Binding, Dropped) {
	n := b.next(op)
	return n, n.drop(q)
}
