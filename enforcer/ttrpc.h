/* ttrpc: calls and answers on one multiplexed byte stream. Unary calls only, which is all that NRI uses.
 *
 * A message is a header of 10 bytes (data length u32 big-endian, stream id u32, type, flags) and its
 * data. No I/O here: streams are fed in pieces of any size, answers are appended to a buffer as
 * multiplexer frames. Source: github.com/containerd/ttrpc PROTOCOL.md, v1.2. */
#ifndef TESSERA_ENFORCER_TTRPC_H
#define TESSERA_ENFORCER_TTRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define EN_TTRPC_HEADER 10
#define EN_TTRPC_DATA_MAX ((uint32_t)4 << 20)

/* google.rpc.Code, those in use */
enum en_ttrpc_code {
	EN_TTRPC_OK = 0,
	EN_TTRPC_UNKNOWN = 2,
	EN_TTRPC_INVALID_ARGUMENT = 3,
	EN_TTRPC_DEADLINE_EXCEEDED = 4,
	EN_TTRPC_RESOURCE_EXHAUSTED = 8,
	EN_TTRPC_FAILED_PRECONDITION = 9,
	EN_TTRPC_UNIMPLEMENTED = 12,
	EN_TTRPC_INTERNAL = 13,
};

/* Puts messages together from a stream. Memory grows with what came, not with what a header claims. */
struct en_ttrpc_reader {
	unsigned char header[EN_TTRPC_HEADER];
	size_t have;    /* bytes of the header */
	uint32_t left;  /* of the data */
	bool oversized; /* more than EN_TTRPC_DATA_MAX: the data is skipped */
	struct buf data;
};

/* ---- the side that is called ---- */

struct en_ttrpc_call {
	uint32_t stream;              /* to be answered under this id */
	const char *service;          /* "nri.pkg.api.v1alpha1.Plugin" */
	const char *method;           /* "CreateContainer" */
	const unsigned char *payload; /* its protobuf message */
	size_t len;
	int64_t timeout_ns; /* the caller's patience; 0 = not said */
};
/* Valid during the call. A negative return ends the feeding. */
typedef int (*en_ttrpc_call_fn)(void *ctx, const struct en_ttrpc_call *call, struct err *err);

struct en_ttrpc_server {
	uint32_t mux_id; /* set by the owner; all else zeroed */
	uint32_t last_stream;
	struct en_ttrpc_reader reader;
};
void en_ttrpc_server_fini(struct en_ttrpc_server *s);

/* A piece of the stream. Calls that are not in order are answered here, to out: an id that is even or
 * not above the last one and a message that cannot be read with INVALID_ARGUMENT, one too large with
 * RESOURCE_EXHAUSTED, a streaming one with UNIMPLEMENTED. Unknown types are skipped.
 * ERR_NOMEM, else what fn returned. */
int en_ttrpc_server_feed(struct en_ttrpc_server *s, const void *data, size_t len, struct buf *out,
			 en_ttrpc_call_fn fn, void *ctx, struct err *err);

/* Appends an answer; len is at most about EN_TTRPC_DATA_MAX: ERR_TOO_LARGE. ERR_NOMEM. Nothing is
 * appended on errors. */
int en_ttrpc_reply(struct buf *out, uint32_t mux_id, uint32_t stream, const void *payload,
		   size_t len, struct err *err);
/* The answer that the call failed. The text is cut to 2,048 bytes, and what is not ASCII becomes '?': Go
 * refuses an answer that is not UTF-8. ERR_NOMEM. */
int en_ttrpc_reply_error(struct buf *out, uint32_t mux_id, uint32_t stream, enum en_ttrpc_code code,
			 const char *text, struct err *err);

/* ---- the side that calls ---- */

struct en_ttrpc_answer {
	uint32_t stream;
	int32_t code;     /* enum en_ttrpc_code, and others; 0 = success */
	const char *text; /* "" on success */
	const unsigned char *payload;
	size_t len;
};
typedef int (*en_ttrpc_answer_fn)(void *ctx, const struct en_ttrpc_answer *answer, struct err *err);

#define EN_TTRPC_PENDING_MAX 4

struct en_ttrpc_client {
	uint32_t mux_id; /* set by the owner; all else zeroed */
	uint32_t last_stream;
	uint32_t pending[EN_TTRPC_PENDING_MAX]; /* 0 = free */
	struct en_ttrpc_reader reader;
};
void en_ttrpc_client_fini(struct en_ttrpc_client *c);

/* Appends a request; *ret_stream is the id its answer will have. ERR_CONFLICT: EN_TTRPC_PENDING_MAX are
 * unanswered, or all ids are used up. ERR_TOO_LARGE, ERR_NOMEM. */
int en_ttrpc_client_call(struct en_ttrpc_client *c, struct buf *out,
			 const struct en_ttrpc_call *call, uint32_t *ret_stream, struct err *err);
/* A piece of the stream. Answers to calls that are not pending are ignored, also second ones; one that
 * cannot be read, or is too large, is an answer with code INTERNAL or RESOURCE_EXHAUSTED. */
int en_ttrpc_client_feed(struct en_ttrpc_client *c, const void *data, size_t len,
			 en_ttrpc_answer_fn fn, void *ctx, struct err *err);

#endif
