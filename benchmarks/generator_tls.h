/* How the generator's bytes travel: as they are, or, with --tls, through OpenSSL. Without WITH_TLS there is only the former, so that plain
 * loads need no OpenSSL to be built. Certificates are not checked: this is a load, not a client. */
#ifdef WITH_TLS
#include <fcntl.h>
#include <openssl/ssl.h>

#define TLS_PIECE (64 * 1024)
static SSL *sessions[65536];

static void net_begin(int fd)
{
    static SSL_CTX *context;
    if (!opt.tls)
        return;
    if (!context) {
        context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_AUTO_RETRY);
        SSL_CTX_set_read_ahead(context, 1);
    }
    if (fd >= 65536)
        die("too many connections");
    SSL *session = sessions[fd] = SSL_new(context);
    SSL_set_fd(session, fd);
    if (SSL_connect(session) != 1)
        die("TLS handshake failed");
}

/* From here on nothing waits. */
static void net_never_wait(int fd)
{
    if (opt.tls)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static ssize_t net_result(SSL *session, int done)
{
    if (done > 0)
        return done;
    int why = SSL_get_error(session, done);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        errno = EAGAIN;
        return -1;
    }
    errno = EPIPE;
    return why == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static ssize_t net_send(int fd, const void *p, size_t n)
{
    return opt.tls ? net_result(sessions[fd], SSL_write(sessions[fd], p, (int)n)) : send(fd, p, n, 0);
}

static ssize_t net_recv(int fd, void *p, size_t n, int flags)
{
    return opt.tls ? net_result(sessions[fd], SSL_read(sessions[fd], p, (int)n)) : recv(fd, p, n, flags);
}

static ssize_t net_sendmsg(int fd, const struct msghdr *message, int flags)
{
    static uint8_t piece[TLS_PIECE];
    if (!opt.tls)
        return sendmsg(fd, message, flags);
    size_t size = 0;
    for (size_t i = 0; i < message->msg_iovlen && size < TLS_PIECE; i++) {
        size_t some = message->msg_iov[i].iov_len < TLS_PIECE - size ? message->msg_iov[i].iov_len : TLS_PIECE - size;
        memcpy(piece + size, message->msg_iov[i].iov_base, some);
        size += some;
    }
    return net_result(sessions[fd], SSL_write(sessions[fd], piece, (int)size));
}

/* Whether OpenSSL holds bytes that epoll does not see. */
static int net_pending(int fd)
{
    return opt.tls && SSL_has_pending(sessions[fd]);
}
#else
static void net_begin(int fd)
{
    (void)fd;
    if (opt.tls)
        die("built without TLS");
}
static void net_never_wait(int fd) { (void)fd; }
static int net_pending(int fd) { return (void)fd, 0; }
#define net_send(fd, p, n) send(fd, p, n, 0)
#define net_recv(fd, p, n, flags) recv(fd, p, n, flags)
#define net_sendmsg(fd, message, flags) sendmsg(fd, message, flags)
#endif
