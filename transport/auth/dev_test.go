package auth

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func newDev(t testing.TB, path, environment string, now func() time.Time) *Dev {
	t.Helper()
	d, err := NewDev(DevOptions{KeyFile: path, Environment: environment, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDevTokens(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	path := filepath.Join(t.TempDir(), "key")
	d := newDev(t, path, "dev", clock)
	token, err := d.MintDev("alice@example.org", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	// Another start with the same key takes it too.
	who, err := newDev(t, path, "dev", clock).Authenticate(t.Context(), token)
	if err != nil || who.Caller.Subject != "alice@example.org" || who.Caller.Environment != "dev" || !who.Expires.Equal(now.Add(time.Hour)) {
		t.Fatalf("%+v, %v", who, err)
	}

	sign := func(method jwt.SigningMethod, key any, claims jwt.Claims) string {
		s, err := jwt.NewWithClaims(method, claims).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	good := jwt.RegisteredClaims{
		Issuer: devIssuer, Audience: jwt.ClaimStrings{d.audience()}, Subject: "alice",
		IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(time.Hour)),
	}
	with := func(change func(*jwt.RegisteredClaims)) jwt.RegisteredClaims { c := good; change(&c); return c }
	other, err := newDev(t, filepath.Join(t.TempDir(), "other"), "dev", clock).MintDev("alice", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"empty":             "",
		"nonsense":          "x.y.z",
		"other key":         other,
		"cut":               token[:len(token)-2],
		"none":              sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good),
		"other hash":        sign(jwt.SigningMethodHS512, d.key, good),
		"other issuer":      sign(jwt.SigningMethodHS256, d.key, with(func(c *jwt.RegisteredClaims) { c.Issuer = "x" })),
		"other environment": sign(jwt.SigningMethodHS256, d.key, with(func(c *jwt.RegisteredClaims) { c.Audience = jwt.ClaimStrings{"harness-engine/prod"} })),
		"no expiry":         sign(jwt.SigningMethodHS256, d.key, with(func(c *jwt.RegisteredClaims) { c.ExpiresAt = nil })),
		"expired":           sign(jwt.SigningMethodHS256, d.key, with(func(c *jwt.RegisteredClaims) { c.ExpiresAt = jwt.NewNumericDate(now) })),
		"from the future":   sign(jwt.SigningMethodHS256, d.key, with(func(c *jwt.RegisteredClaims) { c.IssuedAt = jwt.NewNumericDate(now.Add(time.Hour)) })),
		"no subject":        sign(jwt.SigningMethodHS256, d.key, with(func(c *jwt.RegisteredClaims) { c.Subject = "" })),
		"subject wildcard":  sign(jwt.SigningMethodHS256, d.key, with(func(c *jwt.RegisteredClaims) { c.Subject = "*" })),
		"subject typed":     sign(jwt.SigningMethodHS256, d.key, with(func(c *jwt.RegisteredClaims) { c.Subject = "user:alice" })),
		"long":              strings.Repeat("x", MaxTokenBytes+1),
	} {
		if who, err := d.Authenticate(t.Context(), bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: taken as %+v, %v", name, who, err)
		}
	}
	now = now.Add(time.Hour)
	if _, err := d.Authenticate(t.Context(), token); !errors.Is(err, ErrInvalid) {
		t.Errorf("an hour later: %v", err)
	}
}

func TestMintDevRefuses(t *testing.T) {
	d := newDev(t, filepath.Join(t.TempDir(), "key"), "dev", nil)
	for _, subject := range []string{"", "*", "a b", "user:x", "é", strings.Repeat("a", 129)} {
		if _, err := d.MintDev(subject, time.Hour); err == nil {
			t.Errorf("subject %q", subject)
		}
	}
	for _, life := range []time.Duration{0, -1, MaxDevLife + 1} {
		if _, err := d.MintDev("alice", life); err == nil {
			t.Errorf("life %s", life)
		}
	}
}

func TestKeyFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	var keys sync.Map
	var work sync.WaitGroup
	for range 8 { // engines that start at once agree on one key
		work.Go(func() {
			key, err := loadKey(path)
			if err != nil {
				t.Error(err)
			}
			keys.Store(string(key), true)
		})
	}
	work.Wait()
	n := 0
	keys.Range(func(any, any) bool { n++; return true })
	info, err := os.Stat(path)
	if n != 1 || err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%d keys, %v, %v", n, info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".key-*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := loadKey(path); err == nil || strings.Contains(err.Error(), dir) {
		t.Errorf("readable by others: %v", err)
	}
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadKey(short); err == nil {
		t.Error("a short key was taken")
	}
	if _, err := NewDev(DevOptions{}); err == nil {
		t.Error("no key file was taken")
	}
}

func FuzzAuthenticate(f *testing.F) {
	d := newDev(f, filepath.Join(f.TempDir(), "key"), "dev", nil)
	token, err := d.MintDev("alice", time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("Bearer x.y.z")
	f.Add("bearer  " + token[:20])
	f.Fuzz(func(t *testing.T, header string) {
		if token, ok := Bearer(header); ok {
			if who, err := d.Authenticate(t.Context(), token); err == nil {
				t.Errorf("%q is taken as %+v", header, who)
			}
		}
	})
}
