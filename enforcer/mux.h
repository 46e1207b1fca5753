/* The NRI multiplexer: byte streams with a number each ("connections") over one socket.
 *
 * A frame is the connection's number and a payload length, both u32 big-endian, and the payload. Where
 * a frame begins or ends means nothing to the stream inside, with one exception on the way out: a Go
 * peer reads the payload of a frame with one read of 4,096 bytes and loses what is longer. So a message
 * goes out as two frames, as Go itself writes it. No I/O here: bytes in, bytes out.
 * Source: github.com/containerd/nri pkg/net/multiplex, up to v0.12. */
#ifndef TESSERA_ENFORCER_MUX_H
#define TESSERA_ENFORCER_MUX_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define EN_MUX_HEADER 8
#define EN_MUX_PLUGIN 1       /* the runtime calls, the plugin serves */
#define EN_MUX_RUNTIME 2      /* the plugin calls, the runtime serves */
#define EN_MUX_FIRST_MAX 4096 /* of a message, in its first frame */
/* The largest payload that a peer sends: NRI up to 0.6.1; 4,194,314 since. Frames are not stored, so
 * the bound costs no memory. */
#define EN_MUX_PAYLOAD_MAX ((uint32_t)1 << 24)

struct en_mux {
	unsigned char header[EN_MUX_HEADER];
	size_t have;   /* bytes of the header */
	uint32_t id;   /* of the frame whose payload comes now */
	uint32_t left; /* of that payload */
};

/* A piece of a connection's stream, in order. A negative return ends the feeding. */
typedef int (*en_mux_fn)(void *ctx, uint32_t id, const unsigned char *data, size_t len,
			 struct err *err);

/* A zeroed struct is ready. Takes in what was read from the socket, cut anywhere, and hands the payloads
 * on as they come; unknown numbers too. ERR_TOO_LARGE: a length over EN_MUX_PAYLOAD_MAX (the stream
 * cannot be followed from there: close it); else what fn returned. */
int en_mux_feed(struct en_mux *m, const void *data, size_t len, en_mux_fn fn, void *ctx,
		struct err *err);

/* Appends one message of that connection; a failed allocation is in buf_ok(out). len is at most
 * EN_MUX_PAYLOAD_MAX. */
void en_mux_put(struct buf *out, uint32_t id, const void *message, size_t len);

#endif
