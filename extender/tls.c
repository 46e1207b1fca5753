#include "extender/tls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>

#include "base/file.h"

#define CHAIN_MAX 16
#define FILE_MAX ((size_t)1 << 20)

/* A certificate with its key. A handshake may use one for as long as it takes: all of them live as
 * long as the server. */
struct shown {
	struct shown *older;
	char *cert, *key; /* the files' texts */
	gnutls_pcert_st chain[CHAIN_MAX];
	unsigned chain_count;
	gnutls_privkey_t private;
};

struct ex_tls {
	char *cert_path, *key_path, *client_ca;
	pthread_mutex_t lock;
	struct shown *newest; /* under the lock */
};

static struct ex_tls *the_tls;

static void shown_free(struct shown *s)
{
	if (s == NULL)
		return;
	for (unsigned i = 0; i < s->chain_count; i++)
		gnutls_pcert_deinit(&s->chain[i]);
	if (s->private != NULL)
		gnutls_privkey_deinit(s->private);
	if (s->key != NULL)
		explicit_bzero(s->key, strlen(s->key));
	free(s->cert);
	free(s->key);
	free(s);
}

static gnutls_datum_t datum(char *text)
{
	return (gnutls_datum_t){.data = (unsigned char *)text, .size = (unsigned)strlen(text)};
}

/* Do certificate and key belong together? */
static bool pair(const struct shown *s)
{
	unsigned char text[] = "tessera";
	const gnutls_datum_t data = {.data = text, .size = 7};
	gnutls_digest_algorithm_t hash = GNUTLS_DIG_SHA256;
	gnutls_datum_t sig = {0};
	gnutls_pubkey_t pub = s->chain[0].pubkey;
	int rc;

	gnutls_pubkey_get_preferred_hash_algorithm(pub, &hash, NULL);
	rc = gnutls_privkey_sign_data(s->private, hash, 0, &data, &sig);
	if (rc == 0)
		rc = gnutls_pubkey_verify_data2(
			pub,
			gnutls_pk_to_sign(
				(gnutls_pk_algorithm_t)gnutls_pubkey_get_pk_algorithm(pub, NULL),
				hash),
			0, &data, &sig);
	gnutls_free(sig.data);
	return rc >= 0;
}

static int shown_parse(struct ex_tls *t, struct shown *s, struct err *err)
{
	gnutls_datum_t cert = datum(s->cert), key = datum(s->key);
	int rc;

	s->chain_count = CHAIN_MAX;
	rc = gnutls_pcert_list_import_x509_raw(s->chain, &s->chain_count, &cert,
					       GNUTLS_X509_FMT_PEM, 0);
	if (rc < 0) {
		s->chain_count = 0;
		return err_set(err, ERR_INVALID, "%s: no certificate: %s", t->cert_path,
			       gnutls_strerror(rc));
	}
	rc = gnutls_privkey_init(&s->private);
	if (rc == 0)
		rc = gnutls_privkey_import_x509_raw(s->private, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
	if (rc < 0)
		return err_set(err, ERR_INVALID, "%s: no private key: %s", t->key_path,
			       gnutls_strerror(rc));
	if (!pair(s))
		return err_set(err, ERR_INVALID, "%s is not the key of %s", t->key_path,
			       t->cert_path);
	return 0;
}

static int shown_read(struct ex_tls *t, struct shown **ret, struct err *err)
{
	struct shown *s = calloc(1, sizeof(*s));
	size_t len;
	int rc;

	if (s == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	rc = file_read(t->cert_path, FILE_MAX, &s->cert, &len, err);
	if (rc == 0)
		rc = file_read(t->key_path, FILE_MAX, &s->key, &len, err);
	if (rc == 0)
		rc = shown_parse(t, s, err);
	if (rc < 0)
		shown_free(s);
	else
		*ret = s;
	return rc;
}

int ex_tls_reload(struct ex_tls *t, struct err *err)
{
	struct shown *s = NULL, *now;
	int rc = shown_read(t, &s, err);

	if (rc < 0 || s == NULL)
		return rc;
	pthread_mutex_lock(&t->lock);
	now = t->newest;
	if (now == NULL || strcmp(now->cert, s->cert) != 0 || strcmp(now->key, s->key) != 0) {
		s->older = now;
		t->newest = s;
		s = NULL;
	}
	pthread_mutex_unlock(&t->lock);
	shown_free(s);
	return 0;
}

void ex_tls_free(struct ex_tls *t)
{
	struct shown *s;

	if (t == NULL)
		return;
	if (the_tls == t)
		the_tls = NULL;
	while ((s = t->newest) != NULL) {
		t->newest = s->older;
		shown_free(s);
	}
	pthread_mutex_destroy(&t->lock);
	free(t->cert_path);
	free(t->key_path);
	free(t->client_ca);
	free(t);
}

/* Whose clients are let in. A file without a certificate would let nobody in, or not start the server. */
static int read_client_ca(struct ex_tls *t, const char *path, struct err *err)
{
	gnutls_x509_crt_t *list = NULL;
	unsigned count = 0;
	gnutls_datum_t text;
	size_t len;
	int rc = file_read(path, FILE_MAX, &t->client_ca, &len, err);

	if (rc < 0)
		return rc;
	text = datum(t->client_ca);
	rc = gnutls_x509_crt_list_import2(&list, &count, &text, GNUTLS_X509_FMT_PEM, 0);
	for (unsigned i = 0; rc >= 0 && i < count; i++)
		gnutls_x509_crt_deinit(list[i]);
	gnutls_free(list);
	return rc >= 0 ? 0
		       : err_set(err, ERR_INVALID, "%s: no certificate: %s", path,
				 gnutls_strerror(rc));
}

struct ex_tls *ex_tls_new(const char *cert, const char *key, const char *client_ca, struct err *err)
{
	struct ex_tls *t;
	int rc = 0;

	if (the_tls != NULL) {
		err_set(err, ERR_EXISTS, "one certificate is served already");
		return NULL;
	}
	t = calloc(1, sizeof(*t));
	if (t == NULL) {
		err_set(err, ERR_NOMEM, "out of memory");
		return NULL;
	}
	pthread_mutex_init(&t->lock, NULL);
	t->cert_path = strdup(cert);
	t->key_path = strdup(key);
	if (t->cert_path == NULL || t->key_path == NULL)
		rc = err_set(err, ERR_NOMEM, "out of memory");
	if (rc == 0)
		rc = ex_tls_reload(t, err);
	if (rc < 0)
		err_prefix(err, rc, "--tls-cert, --tls-key");
	else if (client_ca != NULL && (rc = read_client_ca(t, client_ca, err)) < 0)
		err_prefix(err, rc, "--tls-client-ca");
	if (rc < 0) {
		ex_tls_free(t);
		return NULL;
	}
	the_tls = t;
	return t;
}

/* ---- in the handshake ---- */

static int on_certificate(gnutls_session_t session, const gnutls_datum_t *authorities, int count,
			  const gnutls_pk_algorithm_t *algorithms, int algorithm_count,
			  gnutls_pcert_st **ret_chain, unsigned *ret_count,
			  gnutls_privkey_t *ret_private)
{
	struct shown *s;

	(void)session;
	(void)authorities;
	(void)count;
	(void)algorithms;
	(void)algorithm_count;
	pthread_mutex_lock(&the_tls->lock);
	s = the_tls->newest;
	pthread_mutex_unlock(&the_tls->lock);
	*ret_chain = s->chain;
	*ret_count = s->chain_count;
	*ret_private = s->private;
	return 0;
}

void ex_tls_options(struct ex_tls *t, struct MHD_OptionItem ret[EX_TLS_OPTIONS])
{
	gnutls_certificate_retrieve_function2 *fn = on_certificate;

	ret[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_CERT_CALLBACK, 0, NULL};
	memcpy(&ret[0].ptr_value, &fn, sizeof(fn));
	ret[1] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
	ret[2] = ret[1];
	if (t->client_ca != NULL)
		ret[1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_TRUST, 0, t->client_ca};
}

bool ex_tls_asks(const struct ex_tls *t)
{
	return t->client_ca != NULL;
}

bool ex_tls_client_ok(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	char purpose[] = GNUTLS_KP_TLS_WWW_CLIENT;
	gnutls_typed_vdata_st data = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
				      .data = (unsigned char *)purpose};
	unsigned status = 0;

	return info != NULL && info->tls_session != NULL &&
	       gnutls_certificate_verify_peers(info->tls_session, &data, 1, &status) == 0 &&
	       status == 0;
}
