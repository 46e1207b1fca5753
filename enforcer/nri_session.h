/* One connection to a runtime's NRI socket, without the socket: bytes in, bytes out.
 *
 * Registers the plugin, answers Configure by itself, hands all other calls on, and writes the answers in
 * whatever order they are given. Calls of the runtime and answers to our own share the one stream. Used
 * by one thread at a time. */
#ifndef TESSERA_ENFORCER_NRI_SESSION_H
#define TESSERA_ENFORCER_NRI_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "enforcer/nri_msg.h"

/* CREATE, START, STOP, REMOVE; and VALIDATE with it, where the runtime knows it. */
#define EN_NRI_EVENTS                                                                              \
	(EN_NRI_BIT(EN_NRI_EVENT_CREATE) | EN_NRI_BIT(EN_NRI_EVENT_START) |                        \
	 EN_NRI_BIT(EN_NRI_EVENT_STOP) | EN_NRI_BIT(EN_NRI_EVENT_REMOVE))

/* A call that wants an answer: en_nri_session_reply() or _fail(), now or later, or never where the
 * session ends first. The request is the callee's. A negative return ends the session. */
typedef int (*en_nri_request_fn)(void *ctx, struct en_nri_request *take_r, struct err *err);

struct en_nri_session_options {
	const char *name; /* letters, digits, - _ . + */
	const char *idx;  /* two digits: the place among plugins */
	bool no_validate; /* never subscribe to VALIDATE: the last try ended at Configure */
	en_nri_request_fn on_request;
	void *ctx;
};

struct en_nri_session;

/* The registration is in the output already. ERR_INVALID: name or idx; ERR_NOMEM. */
int en_nri_session_new(const struct en_nri_session_options *o, struct en_nri_session **ret,
		       struct err *err);
void en_nri_session_free(struct en_nri_session *s);

/* What was read from the socket. Any error means: close it. ERR_CONFLICT: the runtime refused the
 * registration, in its words; ERR_TOO_LARGE: this is not NRI; ERR_NOMEM; else what on_request returned. */
int en_nri_session_feed(struct en_nri_session *s, const void *data, size_t len, struct err *err);
/* What is to be written; the caller takes bytes from its front with _sent(). */
const struct buf *en_nri_session_output(const struct en_nri_session *s);
void en_nri_session_sent(struct en_nri_session *s, size_t len);

/* Answers with the payload of a message of nri_msg.h. ERR_NOMEM, ERR_TOO_LARGE: close. */
int en_nri_session_reply(struct en_nri_session *s, uint32_t stream, const struct buf *payload,
			 struct err *err);
int en_nri_session_fail(struct en_nri_session *s, uint32_t stream, enum en_ttrpc_code code,
			const char *text, struct err *err);

struct en_nri_status {
	bool registered;   /* the runtime said so */
	bool configured;   /* Configure was answered */
	bool begun;        /* a part of Synchronize came: the runtime has taken our events */
	bool synchronized; /* the last part of Synchronize was handed on: events come from now on */
	bool validates;    /* subscribed to VALIDATE */
	int64_t request_timeout_ms; /* of the runtime; 2,000 where it does not say */
	char runtime[64], runtime_version[64], nri_version[64]; /* "" = not said */
};
const struct en_nri_status *en_nri_session_status(const struct en_nri_session *s);

/* Does this runtime know VALIDATE (NRI 0.10: containerd 2.2.0, CRI-O 1.34.0)? A refused event bit ends the
 * connection without a word, so unknown means no. */
bool en_nri_knows_validate(const char *runtime, const char *runtime_version,
			   const char *nri_version);

#endif
