/* A container runtime's side of NRI, scripted: listens on a socket of its own (or takes a connected one),
 * lets a plugin register, and calls it. Blocking, one thread; every wait has an end. */
#ifndef TESSERA_TEST_FAKE_RUNTIME_H
#define TESSERA_TEST_FAKE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "test/lib/go_peer.h"
#include "test/lib/nri_text.h"

#define FAKE_RUNTIME_PATIENCE_MS 30000

struct fake_runtime {
	char folder[32], path[64];
	int listen_fd, fd; /* fd -1: nobody is connected */
	struct go_peer peer;
	uint32_t stream; /* of the last call */

	/* How it writes: in pieces of so many bytes (0: at once), with a pause after each. */
	size_t piece;
	int pause_us;
};

void fake_runtime_init(struct fake_runtime *r);
void fake_runtime_fini(struct fake_runtime *r);

/* The runtime goes (its socket file too), and comes back. */
void fake_runtime_stop(struct fake_runtime *r);
void fake_runtime_listen(struct fake_runtime *r);
/* A connection without the socket file; the other end is the caller's. */
int fake_runtime_pair(struct fake_runtime *r);

/* Waits for a plugin. false: none came within ms. */
bool fake_runtime_accept(struct fake_runtime *r, int ms);
void fake_runtime_hang_up(struct fake_runtime *r);

/* Writes as the manners say. false: the plugin has hung up. */
bool fake_runtime_write(struct fake_runtime *r, const struct buf *bytes);
/* The next message of that connection; its data is the caller's. false: none within ms, or hung up. */
bool fake_runtime_read(struct fake_runtime *r, uint32_t mux_id, int ms, struct go_message *ret);
/* Waits until the plugin has hung up. */
bool fake_runtime_gone(struct fake_runtime *r, int ms);

/* Sends a call; returns its stream id. */
uint32_t fake_runtime_send(struct fake_runtime *r, const char *method, const struct buf *payload);
/* Waits for the answer to that stream; answers to others are thrown away. Its code, or -1: none came.
 * *ret (may be NULL) gets the payload; text (may be NULL) what an error says. */
int fake_runtime_answer(struct fake_runtime *r, uint32_t stream, int ms, struct buf *ret,
			char *text, size_t text_cap);
/* Both. */
int fake_runtime_call(struct fake_runtime *r, const char *method, const struct buf *payload, int ms,
		      struct buf *ret, char *text, size_t text_cap);

struct fake_handshake {
	const char *version;  /* of containerd; NULL: "v2.3.4" */
	bool configure_first; /* Configure goes out before the registration is answered */
	size_t pod_count, container_count;
	const struct nt_pod *pods;
	const struct nt_container *containers;
	bool in_parts; /* each pod and each container in a message of its own */
};
/* Accepts, reads the registration, configures and synchronizes. The events subscribed to; -1: it went
 * wrong. h NULL: all zero. */
int32_t fake_runtime_handshake(struct fake_runtime *r, const struct fake_handshake *h);

#endif
