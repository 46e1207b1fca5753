/* Where the API server is and who we are there: from the pod's service account, or from a kubeconfig
 * file (YAML, of which JSON is a part). */
#ifndef TESSERA_KUBE_CONFIG_H
#define TESSERA_KUBE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define KU_CONFIG_MAX_BYTES ((size_t)16 << 20)

/* PEM text: inline (data), or a file (path) that is read again while it is in use, since whoever made it
 * may replace it. Neither: not given. */
struct ku_pem {
	char *path;
	char *data;
	size_t len;
};

struct ku_config {
	char *server;          /* "https://host[:port][/prefix]", no '/' at the end */
	char *ns;              /* "default" where none is given */
	char *tls_server_name; /* NULL: the host of server */
	char *proxy_url;       /* NULL: none but what the environment says */
	bool insecure;         /* certificates are not verified; only where the file says so */
	struct ku_pem ca;      /* not given: the system's */
	struct ku_pem cert, key;
	char *token;      /* NULL: none. What token_file held at loading, or a fixed one */
	char *token_file; /* NULL: token is fixed */
};

/* Reads a kubeconfig file. context NULL: its current-context. Relative paths in it are relative to
 * its folder. Refused, with a message that says what to use instead: exec and auth-provider plugins,
 * passwords, impersonation. Errors start with the file's name and name the field
 * ("users[1].user.token"): ERR_INVALID, ERR_NOT_FOUND (context, cluster or user of that name),
 * ERR_IO, ERR_TOO_LARGE, ERR_NOMEM. *ret is written only on success; ku_config_fini() frees it. */
int ku_config_load(const char *path, const char *context, struct ku_config *ret, struct err *err);

/* NULL fields: KUBERNETES_SERVICE_HOST and _PORT of the environment, and
 * /var/run/secrets/kubernetes.io/serviceaccount. */
struct ku_in_cluster {
	const char *host, *port, *dir;
};
/* ERR_NOT_FOUND: this is no pod (no host or port). Else as ku_config_load(). where may be NULL. */
int ku_config_in_cluster(const struct ku_in_cluster *where, struct ku_config *ret, struct err *err);

/* A deep copy; ERR_NOMEM. */
int ku_config_copy(const struct ku_config *c, struct ku_config *ret, struct err *err);
void ku_config_fini(struct ku_config *c); /* overwrites secrets; the struct is empty afterwards */

/* Reads a file of PEM text. *ret (path stays NULL) is freed by ku_pem_fini(), which overwrites it. The
 * message names the file: ERR_INVALID (no PEM text), ERR_IO, ERR_TOO_LARGE, ERR_NOMEM. */
int ku_config_read_pem(const char *path, struct ku_pem *ret, struct err *err);
void ku_pem_fini(struct ku_pem *p); /* the struct is empty afterwards */

/* Reads a token file: white space around it is dropped. *ret is malloc'ed. ERR_INVALID when it is
 * empty or holds characters that no header may hold; ERR_IO, ERR_TOO_LARGE, ERR_NOMEM. The message
 * names the file and never its content. */
int ku_config_read_token(const char *path, char **ret, struct err *err);

#endif
