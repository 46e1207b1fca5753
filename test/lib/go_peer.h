/* How a Go program reads what an NRI plugin sends: the multiplexer hands one whole frame to one read, the
 * reader has 4,096 bytes of room, and a frame that does not fit is lost with the connection. Bytes in,
 * ttrpc messages out. Written apart from enforcer/mux.c and ttrpc.c on purpose. */
#ifndef TESSERA_TEST_GO_PEER_H
#define TESSERA_TEST_GO_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define GO_CONNECTIONS 3 /* 0 is not used */

struct go_frame {
	unsigned char *data;
	size_t len;
};

struct go_connection {
	struct go_frame *frames;
	size_t frame_count, frame_next;
	unsigned char room[4096]; /* of the buffered reader */
	size_t room_at, room_end;
};

struct go_peer {
	struct buf bytes; /* not a whole frame yet */
	struct go_connection connections[GO_CONNECTIONS];
	const char *fault; /* NULL; what would have made Go hang up */
};

struct go_message {
	uint32_t mux_id, stream;
	uint8_t type, flags;
	size_t len;
	unsigned char *data; /* malloc'ed */
};

void go_peer_fini(struct go_peer *p);
void go_peer_feed(struct go_peer *p, const void *data, size_t len);
/* The next whole message of that connection; false: there is none (yet), or there was a fault. */
bool go_peer_next(struct go_peer *p, uint32_t mux_id, struct go_message *ret);

/* The frames that Go writes for one message. */
void go_put_message(struct buf *out, uint32_t mux_id, uint32_t stream, uint8_t type,
		    const void *data, size_t len);

#endif
