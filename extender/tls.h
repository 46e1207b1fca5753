/* The certificate that the server shows, which can be read again while it serves; and the look at that
 * of a client. GnuTLS's callback has no room for a context: there is one of these in a process. */
#ifndef TESSERA_EXTENDER_TLS_H
#define TESSERA_EXTENDER_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include <microhttpd.h>

#include "base/err.h"

struct ex_tls;

/* client_ca NULL: clients are not asked for a certificate. ERR_IO, ERR_INVALID (names the file),
 * ERR_NOMEM, ERR_EXISTS where there is one. */
struct ex_tls *ex_tls_new(const char *cert, const char *key, const char *client_ca,
			  struct err *err);
/* After the server. NULL is allowed. */
void ex_tls_free(struct ex_tls *t);
/* Certificate and key anew; connections that are open keep the old ones. On error nothing changes. */
int ex_tls_reload(struct ex_tls *t, struct err *err);

/* For MHD_OPTION_ARRAY: callback and authority; ended by MHD_OPTION_END. */
#define EX_TLS_OPTIONS 3
void ex_tls_options(struct ex_tls *t, struct MHD_OptionItem ret[EX_TLS_OPTIONS]);
bool ex_tls_asks(const struct ex_tls *t);
/* Has the client shown a certificate of the authority, for clients? */
bool ex_tls_client_ok(struct MHD_Connection *c);

#endif
