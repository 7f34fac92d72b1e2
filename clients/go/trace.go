package duetime

import (
	"context"
	"net/http"
	"strings"
)

// inTraceOf returns a ctx in the trace of a message: its producer's, or that of the delivery where the node records it.
func (t *transport) inTraceOf(ctx context.Context, m ClaimedMessage) context.Context {
	if t.extract == nil || m.Traceparent == "" {
		return ctx
	}
	headers := http.Header{"Traceparent": {m.Traceparent}}
	// A delivery that the node records is a span of another trace than the producer's, which tracestate belongs to.
	if state := m.Headers["tracestate"]; state != "" && span(m.Headers["traceparent"]) == span(m.Traceparent) {
		headers.Set("Tracestate", state)
	}
	return t.extract(ctx, headers)
}

// span is a traceparent without its flags, of which the node keeps those that it knows.
func span(traceparent string) string {
	if at := strings.LastIndexByte(traceparent, '-'); at >= 0 {
		return traceparent[:at]
	}
	return ""
}
