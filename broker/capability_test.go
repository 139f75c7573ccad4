package broker

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/harness"
)

var (
	testKey     = []byte("0123456789abcdef0123456789abcdef")
	testBinding = harness.Binding{SessionID: "ses_one", Epoch: 2, SandboxGen: 3}
)

func newSigner(t *testing.T, key []byte, now func() time.Time) *Signer {
	t.Helper()
	s, err := NewSigner(key, now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mint(t *testing.T, s *Signer, b harness.Binding, run string, ttl time.Duration) string {
	t.Helper()
	token, err := s.Mint(b, run, s.now().Add(ttl))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestCapabilityRoundTripAndExpiryAtTheInstant(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := newSigner(t, testKey, func() time.Time { return now })
	token := mint(t, s, testBinding, "run_one", time.Minute)
	c, err := s.verify(token)
	if err != nil || c.SessionID != "ses_one" || c.Epoch != 2 || c.SandboxGen != 3 || c.RunID != "run_one" {
		t.Fatalf("got %+v, %v", c, err)
	}
	now = now.Add(time.Minute - time.Millisecond)
	if _, err := s.verify(token); err != nil {
		t.Errorf("a millisecond before: %v", err)
	}
	now = now.Add(time.Millisecond)
	if _, err := s.verify(token); err != errExpired {
		t.Errorf("at the instant: %v", err)
	}
}

func TestMintRefusesWhatCouldNotBeChecked(t *testing.T) {
	if _, err := NewSigner(testKey[:31], nil); err == nil {
		t.Error("a short key was accepted")
	}
	s := newSigner(t, testKey, nil)
	for name, c := range map[string]struct {
		b   harness.Binding
		run string
		ttl time.Duration
	}{
		"no session":    {harness.Binding{Epoch: 1, SandboxGen: 1}, "run_one", time.Minute},
		"no epoch":      {harness.Binding{SessionID: "ses_one", SandboxGen: 1}, "run_one", time.Minute},
		"no generation": {harness.Binding{SessionID: "ses_one", Epoch: 1}, "run_one", time.Minute},
		"no run":        {testBinding, "", time.Minute},
		"another noun":  {testBinding, "ses_one", time.Minute},
		"expired":       {testBinding, "run_one", -time.Second},
	} {
		if token, err := s.Mint(c.b, c.run, s.now().Add(c.ttl)); err == nil {
			t.Errorf("%s: minted %s", name, token)
		}
	}
}

func TestForgedTokens(t *testing.T) {
	s := newSigner(t, testKey, nil)
	good := mint(t, s, testBinding, "run_one", time.Minute)
	other := newSigner(t, []byte(strings.Repeat("x", 32)), nil)
	payload, mac, _ := strings.Cut(strings.TrimPrefix(good, tokenPrefix), ".")
	foreign := tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(`{"aud":"other","exp":99999999999999}`))
	foreign += "." + base64.RawURLEncoding.EncodeToString(s.mac(foreign))
	for name, c := range map[string]struct {
		token string
		want  error
	}{
		"empty":           {"", errMalformed},
		"prefix only":     {tokenPrefix, errMalformed},
		"no signature":    {tokenPrefix + payload, errMalformed},
		"empty signature": {tokenPrefix + payload + ".", errForged},
		"other key":       {mint(t, other, testBinding, "run_one", time.Minute), errForged},
		"other prefix":    {"hcap2." + payload + "." + mac, errMalformed},
		"other payload":   {tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(`{"aud":"broker"}`)) + "." + mac, errForged},
		"padded":          {good + "=", errMalformed},
		"line break":      {good + "\n", errMalformed},
		"other audience":  {foreign, errAudience},
		"too long":        {good + strings.Repeat("A", maxTokenBytes), errMalformed},
	} {
		if _, err := s.verify(c.token); err != c.want {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// Whatever byte of a token is changed, it is not accepted.
func TestEveryChangedByteIsRefused(t *testing.T) {
	s := newSigner(t, testKey, nil)
	good := mint(t, s, testBinding, "run_one", time.Minute)
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(good)-1).Draw(t, "at")
		c := rapid.Byte().Draw(t, "byte")
		if c == good[i] {
			t.Skip()
		}
		if _, err := s.verify(good[:i] + string([]byte{c}) + good[i+1:]); err == nil {
			t.Fatalf("accepted with %q at %d", c, i)
		}
	})
}

func FuzzVerify(f *testing.F) {
	// The same token in each of the fuzzer's processes.
	s, _ := NewSigner(testKey, func() time.Time { return time.Unix(1_700_000_000, 0) })
	good, _ := s.Mint(testBinding, "run_one", time.Unix(1_700_000_060, 0))
	f.Add(good)
	f.Add(tokenPrefix + "e30." + "AAAA")
	f.Fuzz(func(t *testing.T, token string) {
		if c, err := s.verify(token); err == nil && token != good {
			t.Fatalf("accepted %q as %+v", token, c)
		}
	})
}
