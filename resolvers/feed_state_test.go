package resolvers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/catalog"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/session"
)

// watchedCatalog is a catalog that changes when the test says so.
type watchedCatalog struct {
	Catalog
	latest catalog.Change
	told   map[*func()]struct{}
}

func (c *watchedCatalog) Latest() catalog.Change { return c.latest }

func (c *watchedCatalog) Watch(f func()) (release func()) {
	c.told[&f] = struct{}{}
	return func() { delete(c.told, &f) }
}

func (c *watchedCatalog) change(revision string) {
	c.latest.Revision = revision
	for f := range c.told {
		(*f)()
	}
}

// states is a house with a catalog and changes of sessions.
func states(t *testing.T, g *switchable) (*house, *watchedCatalog, *session.Changes) {
	t.Helper()
	h := newHouse(t, g)
	c := &watchedCatalog{told: map[*func()]struct{}{}, latest: catalog.Change{Revision: "1"}}
	changes := session.NewChanges(session.ChangesOptions{Sessions: shelf{}, Poll: time.Hour})
	h.root.Catalog, h.root.Changes = c, changes
	t.Cleanup(func() { changes.Close(); h.hub.Close() })
	return h, c, changes
}

// item polls for the next item, as far as there is one without waiting for a change.
func (h *house) item(f Feed) (Item, error) {
	h.t.Helper()
	for range 3 {
		item, ok, err := f.Poll(context.Background())
		if ok || err != nil {
			return item, err
		}
		synctest.Wait()
	}
	return Item{}, nil
}

func TestCatalogIsShownAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, c, _ := states(t, &switchable{answer: answer{ok: true}})
		f := h.open(`subscription { now: catalogChanged { revision } }`, "").(StateFeed)
		calls := 0
		f.Notify(func() { calls++ })
		want := func(revision string) {
			t.Helper()
			item, err := h.item(f)
			payload := ""
			if revision != "" {
				payload = fmt.Sprintf(`{"data":{"now":{"revision":%q}}}`, revision)
			}
			if err != nil || string(item.Payload) != payload || item.Cursor != "" {
				t.Errorf("got %s (%v), want %s", item.Payload, err, payload)
			}
		}
		want("1")
		want("")
		before := calls
		c.change("2")
		c.change("3") // in quick succession they are one
		if calls == before {
			t.Error("nobody was told")
		}
		want("3")
		f.Again()
		c.latest.Revision = "4"
		want("4")
		want("")
		f.Close()
		f.Close()
		if len(c.told) != 0 {
			t.Error("the catalog is still watched")
		}
		c.change("5")
		want("")
	})
}

// A session is shown until 5 seconds after its permission was asked for, and its edges' were; after that it is shown as it
// is by then, or not at all.
func TestSessionsAreShownWhileTheyMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &switchable{answer: answer{ok: true}}
		h, _, changes := states(t, g)
		f := h.open(`subscription { sessionChanged { id } }`, "")
		rev := int64(0)
		change := func() {
			rev++
			changes.Publish(session.Binding{ID: "ses_1", Rev: rev, Key: session.Key{Environment: "test", Subject: "rita"}})
		}
		change()
		begun := time.Now()
		item, err := h.item(f)
		if err != nil || string(item.Payload) != `{"data":{"sessionChanged":{"id":"ses_1"}}}` {
			t.Fatalf("got %s (%v)", item.Payload, err)
		}
		if !item.Until.Equal(begun.Add(3 * time.Second)) {
			t.Errorf("it may be shown for %v", item.Until.Sub(begun))
		}
		// One that nobody fetched in time is shown anew.
		change()
		_, _, _ = f.Poll(context.Background())
		synctest.Wait()
		time.Sleep(4 * time.Second)
		asked := g.asked
		if item, err := h.item(f); err != nil || !item.Until.Equal(time.Now().Add(3*time.Second)) || g.asked == asked {
			t.Errorf("until %v (%v), asked %d times more", item.Until, err, g.asked-asked)
		}
		change()
		_, _, _ = f.Poll(context.Background())
		synctest.Wait()
		time.Sleep(4 * time.Second)
		g.set(problem.NotFoundf("session"))
		if item, err := h.item(f); err != nil || item.Payload != nil {
			t.Errorf("shown without a permission: %s (%v)", item.Payload, err)
		}
		// An outage holds it, and ends the feed when it lasts.
		g.set(unanswered)
		change()
		_, _, _ = f.Poll(context.Background())
		time.Sleep(10 * time.Second)
		g.set(nil)
		time.Sleep(time.Second)
		if item, err := h.item(f); err != nil || item.Payload == nil {
			t.Errorf("after an outage: %s (%v)", item.Payload, err)
		}
		g.set(unanswered)
		change()
		_, _, _ = f.Poll(context.Background())
		time.Sleep(2 * h.root.Limits.HoldFor)
		var shown *gqlerror.Error
		if _, err := h.item(f); !errors.As(err, &shown) || shown.Extensions["code"] != string(problem.AuthorizationUnavailable) {
			t.Errorf("ended with %v", err)
		}
		f.Close()
	})
}

// One that is let go while it shows something leaves nothing behind.
func TestAStateThatIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &switchable{answer: answer{ok: true}}
		h, _, changes := states(t, g)
		f := h.open(`subscription { sessionChanged { id } }`, "")
		changes.Publish(session.Binding{ID: "ses_1", Rev: 1, Key: session.Key{Environment: "test", Subject: "rita"}})
		g.set(unanswered)
		_, _, _ = f.Poll(context.Background())
		synctest.Wait()
		if !changes.Watching() {
			t.Fatal("it does not follow")
		}
		f.Close()
		synctest.Wait()
		if changes.Watching() {
			t.Error("it still follows")
		}
		if places, _ := h.root.shows.Taken(); places != 0 {
			t.Errorf("it has %d places", places)
		}
	})
}
