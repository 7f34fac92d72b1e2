// Orders that are closed if they are not paid in time. Duetime calls POST /due for each check that is due.
//
//	DUETIME_URL=http://127.0.0.1:3830 WEBHOOK_SECRET=whsec_… PORT=8000 go run .
//
// The node has a sink `shop` with `url = "http://…:8000/due"` and the same secret; see ../README.md. The orders are
// in memory, for the sake of a short file: a shop has them in a database, and change is one UPDATE there.
package main

import (
	"context"
	"duetime.example/go/duetime"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// bodyMax is the largest webhook that is read.
const bodyMax = 1 << 20

type shop struct {
	checks  *duetime.Topic
	timeout time.Duration
	secrets []string
	lock    sync.Mutex
	orders  map[string]string
}

// change changes an order that is open, and no other: a second call, or a late one, does nothing.
func (s *shop) change(order, state string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.orders[order] == "open" {
		s.orders[order] = state
	}
}

func (s *shop) state(order string) string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.orders[order]
}

func (s *shop) show(w http.ResponseWriter, order string) {
	state := s.state(order)
	if state == "" {
		http.Error(w, "no such order", http.StatusNotFound)
		return
	}
	w.Header().Set("content-type", "application/json")
	json.NewEncoder(w).Encode(map[string]string{"order": order, "state": state})
}

func (s *shop) place(w http.ResponseWriter, r *http.Request, order string) {
	// The check first: a check without its order does nothing, an order without a check stays open. Without an answer
	// of the node this request fails and is repeated; then the check is a duplicate.
	check := duetime.NewMessage{ID: order, Payload: map[string]string{"order": order}, Delay: s.timeout}
	if _, err := s.checks.Enqueue(r.Context(), check); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	s.lock.Lock()
	if s.orders[order] == "" {
		s.orders[order] = "open"
	}
	s.lock.Unlock()
	s.show(w, order)
}

func (s *shop) pay(w http.ResponseWriter, r *http.Request, order string) {
	s.change(order, "paid")
	if s.state(order) == "closed" {
		http.Error(w, "the order is closed", http.StatusConflict)
		return
	}
	if _, err := s.checks.Cancel(r.Context(), order); err != nil {
		// The record is what counts: the check finds the order paid.
		log.Printf("the check of %s is not cancelled: %v", order, err)
	}
	s.show(w, order)
}

func (s *shop) due(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, err = duetime.Verify(body, r.Header, s.secrets...)
	if errors.Is(err, duetime.ErrInvalidSignature) {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var check struct{ Order string }
	if err == nil {
		err = json.Unmarshal(body, &check)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.change(check.Order, "closed")
	w.WriteHeader(http.StatusNoContent)
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.Method == "POST" && r.URL.Path == "/due":
		s.due(w, r)
	case len(parts) == 2 && parts[0] == "orders" && r.Method == "GET":
		s.show(w, parts[1])
	case len(parts) == 2 && parts[0] == "orders" && r.Method == "PUT":
		s.place(w, r, parts[1])
	case len(parts) == 3 && parts[0] == "orders" && parts[2] == "payment" && r.Method == "POST":
		s.pay(w, r, parts[1])
	default:
		http.NotFound(w, r)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// RetryFor: a customer's request waits no longer than this for a node that is away.
	options := duetime.Options{Token: os.Getenv("DUETIME_TOKEN"), RetryFor: 3 * time.Second}
	checks := must(duetime.New(os.Getenv("DUETIME_URL"), options)).Topic("shop-orders")
	must(checks.Create(ctx, duetime.Settings{"sink": map[string]string{"name": "shop"}}))
	s := &shop{
		checks:  checks,
		timeout: must(time.ParseDuration(env("ORDER_TIMEOUT", "30m"))),
		secrets: strings.Fields(os.Getenv("WEBHOOK_SECRET")), // Several while one is changed.
		orders:  map[string]string{},
	}
	server := &http.Server{Addr: "127.0.0.1:" + env("PORT", "8000"), Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		server.Shutdown(context.Background())
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}
