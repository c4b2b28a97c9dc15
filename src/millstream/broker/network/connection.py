"""One client's connection: bytes in, frames to the dispatcher, responses out in order.

Reading. All connections share one scratch buffer: a frame that arrives whole is handled where it landed, so
that an idle connection owns no memory. Only an unfinished frame gets a buffer of its own. It grows with the
bytes that have really arrived, never with the length that was claimed, under one budget for the whole broker.
A connection whose buffer has outgrown the scratch receives its next frames there, which saves copying their
beginnings; where several do, a thread helps (`receiver`).

One request at a time. Until the response to a request has been handed to the kernel, the next frame is not
looked at, so that a client that does not read its responses stops itself. A handler that cannot answer at
once (long poll, waiting for a write to be durable) parks the connection and resumes it later. What it waits
for may take the frames that follow (`ProduceQueue`), and then answers them in their order.

Writing is in `response_writer`. TLS has a subclass of its own (`tls_connection`), which replaces what touches
the socket.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.broker.network.buffer_budget import KeptFrame
from millstream.broker.network.file_range import Part, release
from millstream.broker.network.response_writer import ResponseWriter
from millstream.wire.primitives import INT32

if TYPE_CHECKING:
    from millstream.broker.login.login import Login, Session
    from millstream.broker.network.dispatch import Dispatcher, Dispatches, FastPath
    from millstream.broker.network.listener import ListenerContext

logger = logging.getLogger("millstream.network")

ANONYMOUS = "User:ANONYMOUS"
SCRATCH_SIZE = 256 * 1024
LARGE_REQUEST = 8 * 1024  # whose responses are sent at once
FRAMES_PER_TURN = 64  # before the other connections have their turn
FIRST_BUFFER = 8 * 1024  # for an unfinished frame; doubled as its bytes arrive
KEEP_BUFFER = 2 * 1024 * 1024  # a buffer up to this size is kept for the next large frame

_scratch = bytearray(SCRATCH_SIZE)
_scratch_view = memoryview(_scratch)


class Connection(ResponseWriter):
    __slots__ = (
        "_buffer",
        "_filled",
        "_muted",
        "_poller",
        "_receiving",
        "bytes_in",
        "certified",
        "client_host",
        "client_id",
        "context",
        "dispatcher",
        "fast_path",
        "front",
        "peer",
        "pending",
        "principal",
        "requests",
        "session",
        "software",
    )

    hands_over = True  # to the receiving thread, where that helps

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        context: ListenerContext,
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.peer = peer
        self.client_host = peer.rsplit(":", 1)[0]
        self.session: Login | Session | None = None  # on listeners with logins
        self.certified = False  # a certificate that the listener trusts was shown
        self.principal = ANONYMOUS  # until a certificate or a login says who this is
        self.context = context
        self.dispatcher = dispatcher
        self.front: Dispatches = dispatcher  # takes the frames: the dispatcher, or a login before it
        self.loop = loop
        self.closed = False
        self.parked = False  # a request is being worked on; its response is still to come
        self.pending: object = None  # what that request waits for, so that closing can cancel it
        self.last_active = loop.time()
        self.bytes_in = self.bytes_out = self.requests = 0
        self.client_id = ""
        self.software = ""
        self.fast_path: FastPath | None = None  # set by the handlers of Produce and Fetch
        self._buffer: bytearray | None = None  # holds an unfinished frame, or frames behind a parked one
        self._filled = 0
        self._muted = False
        self._receiving = False  # the receiving thread has the socket and the buffer
        self._hold = False  # another whole request is waiting right behind the current one
        self._held: list[bytes] = []  # responses that are sent with the next one
        self._out: deque[Part] = deque()
        self._writing = False
        self._poller = context.poller
        self._poller.watch(self)

    @property
    def token_authenticated(self) -> bool:
        """Whether the login was by a delegation token, with which no other can be had (KIP-48)."""
        identity = getattr(self.session, "identity", None)
        return identity is not None and identity.by_token

    # ------------------------------------------------------------------ reading

    def receive(self, into: memoryview) -> int:
        """Bytes received; 0 when the peer has closed, -1 when there is nothing now.

        Also called by the receiving thread.
        """
        try:
            return self.sock.recv_into(into)
        except (BlockingIOError, InterruptedError):
            return -1
        except OSError:
            return 0

    def readable(self) -> None:
        """There is something to read, or the peer has closed."""
        if (self.parked or self._out) and not self._pipelines():
            self._notice_hangup()
            return
        filled = self._filled
        target = _scratch_view
        if filled:
            free = self._room_for_more()
            if free is None:
                return
            target = free
        elif self._buffer is not None and len(self._buffer) > SCRATCH_SIZE:
            # Frames are large on this connection: they are received where they can stay.
            target = memoryview(self._buffer)
        self.last_active = self._poller.now
        if target is _scratch_view:
            count = self.receive(target)
            if count > 0:
                self.bytes_in += count
                done = self._frames(_scratch_view, count)
                if done < count and not self.closed:
                    self._keep(_scratch_view[done:count])
            elif count == 0:
                self.close()
        elif (
            len(self.context.budget.holders) > 1
            and self.hands_over
            and self._poller.receiver.take(self, target)
        ):
            self._receiving = True
            self._poller.forget(self)
        else:
            self._arrived(self.receive(target))

    def received(self, count: int) -> None:
        """The receiving thread is done."""
        self._receiving = False
        if self.closed:
            self._close_socket()
            return
        self._poller.watch(self)
        self._arrived(count)

    def _arrived(self, count: int) -> None:
        """`count` bytes have come into our own buffer; as `receive` counts them."""
        if count > 0:
            self.bytes_in += count
            self._filled += count
            self._drain()
        elif count == 0:
            self.close()

    def _notice_hangup(self) -> None:
        """A parked connection became readable: has the peer closed, or is it sending ahead?"""
        try:
            ahead = self.sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            ahead = b""
        if ahead:
            self._sent_ahead()
        else:
            self.close()

    def _sent_ahead(self) -> None:
        """The next request is there before the last one is answered: it is not looked at until then."""
        self._muted = True
        self._poller.forget(self)
        hurry = getattr(self.pending, "hurry", None)
        if hurry is not None:
            hurry()

    def _room_for_more(self) -> memoryview | None:
        """Free space behind what has arrived of the current frame, ending where the frame ends."""
        buffer, filled = self._buffer, self._filled
        assert buffer is not None
        need = INT32.unpack_from(buffer)[0] + 4 if filled >= 4 else 4
        if need <= filled:  # whole frames are waiting; reading ahead of them helps nobody
            return None
        if filled >= len(buffer):
            bigger = min(need, 2 * len(buffer))
            budget = self.context.budget
            if not budget.take(bigger - len(buffer), self):
                self.close("the broker's budget for unfinished requests is used up")
                return None
            grown = bytearray(bigger)
            grown[:filled] = buffer
            self._buffer = buffer = grown
        return memoryview(buffer)[filled:need]

    def _keep(self, rest: memoryview) -> None:
        """Move what is left in the scratch buffer to a buffer of our own."""
        size = len(rest)
        buffer = self._buffer
        if buffer is None or len(buffer) < size:
            claimed = INT32.unpack_from(rest)[0] + 4 if size >= 4 else FIRST_BUFFER
            capacity = max(size, min(claimed, FIRST_BUFFER))
            budget = self.context.budget
            if buffer is not None:
                budget.give_back(len(buffer), self)
                self._buffer = None
            if not budget.take(capacity, self):
                self.close("the broker's budget for unfinished requests is used up")
                return
            self._buffer = buffer = bytearray(capacity)
        buffer[:size] = rest
        self._filled = size

    def _drain(self) -> None:
        """Handle the whole frames in our own buffer."""
        buffer = self._buffer
        if buffer is None:
            return
        filled = self._filled
        with memoryview(buffer) as view:
            done = self._frames(view, filled)
        if self.closed or not done:
            return
        rest = filled - done
        if self._buffer is not buffer:  # `keep_frame` has taken it
            if rest:
                self._keep(memoryview(buffer)[done:filled])
            return
        if rest:
            buffer[:rest] = buffer[done:filled]
        self._filled = rest
        if not rest and len(buffer) > KEEP_BUFFER:
            self._drop_buffer()

    def use_context(self, context: ListenerContext) -> None:
        """Another one from now on, whose budget counts what this connection holds."""
        before, buffer = self.context.budget, self._buffer
        self.context = context
        if buffer is not None and context.budget is not before:
            before.give_back(len(buffer), self)
            context.budget.used += len(buffer)
            context.budget.holders.add(self)

    def _drop_buffer(self) -> None:
        if self._buffer is not None:
            self.context.budget.give_back(len(self._buffer), self)
            self._buffer = None
            self._filled = 0

    def _frames(self, view: memoryview, end: int) -> int:
        """Handle whole frames until one must wait; returns how many bytes were used up."""
        at = 0
        dispatch = self.front.dispatch
        turns = FRAMES_PER_TURN
        while end - at >= 4:
            size = INT32.unpack_from(view, at)[0]
            if size < 0 or size > self.context.max_frame:
                limit = self.context.max_frame
                self.close(
                    f"frame of {size} bytes is outside 0 to {limit} ({self.context.max_frame_setting})"
                )
                return end
            start = at + 4
            stop = start + size
            if stop > end or self._out:
                break
            if self.parked:
                if not self._pipelines() or not self.pending.take(view, start, stop):  # type: ignore[attr-defined]
                    break
                at = stop
                self.requests += 1
                if self.closed:
                    return end
                continue
            if not turns:
                self.loop.call_soon(self._continue)
                break
            turns -= 1
            at = stop
            self.requests += 1
            self._hold = True
            if size > LARGE_REQUEST:
                # Nobody's response waits for what this request takes. Its own waits only where another whole
                # request was sent with it.
                self._poller.send_all()
                left = end - at
                self._hold = turns > 0 and left >= 4 and 0 <= INT32.unpack_from(view, at)[0] <= left - 4
            dispatch(self, view, start, stop)
            if self.closed:
                return end
            if self._held and (not self._hold or self.parked):
                self.send_held()
        self._hold = False
        if self._held:
            self._poller.send_later(self)
        return at

    def _continue(self) -> None:
        """Go on with the frames that were waiting behind a parked or throttled one."""
        if self.closed or self.parked or self._out:
            return
        if self._filled:
            self._drain()
        if self._muted and not (self.closed or ((self.parked or self._out) and not self._pipelines())):
            self._muted = False
            self._poller.watch(self)

    # ------------------------------------------------------------------ requests that wait

    def park(self, pending: object) -> None:
        """The current request is answered later: the next frame is not looked at until `resume`."""
        self.parked = True
        self.pending = pending

    def keep_frame(self, frame: memoryview) -> KeptFrame:
        """The frame that is being handled, for work that ends after this turn. What arrived in the shared
        scratch buffer is copied, which is little; a buffer of our own goes with it."""
        budget = self.context.budget
        buffer = self._buffer
        if buffer is None or frame.obj is not buffer:
            return KeptFrame(memoryview(bytearray(frame)), budget, 0)
        self._buffer = None
        self._filled = 0
        budget.holders.discard(self)
        return KeptFrame(frame, budget, len(buffer))

    @property
    def may_pipeline(self) -> bool:
        """Whether a request may be written before the one ahead of it is answered: unless a quota or a login
        has to look at it first."""
        dispatcher = self.dispatcher
        return self.front is dispatcher and not dispatcher.metered

    def _pipelines(self) -> bool:
        """Whether what this parked connection waits for takes more."""
        return not self._out and getattr(self.pending, "takes_more", False)

    def send_with_others(self, data: bytes) -> None:
        """Send a response at the end of the turn, in one piece with what else is answered in it."""
        if self._out:
            self._out.append(data)
            return
        self._held.append(data)
        if len(self._held) == 1:
            self._poller.send_later(self)

    def at_end_of_turn(self, work: Callable[[], None]) -> None:
        """Do this when all that has arrived is handled; now, if that is over."""
        self._poller.at_end(work)

    def resume(self) -> None:
        """The parked request has been answered (or needs no answer)."""
        self.parked = False
        self.pending = None
        if self._filled or self._muted:
            self.loop.call_soon(self._continue)

    # ------------------------------------------------------------------ the end

    def shed(self) -> bool:
        """Give back a buffer that is only kept for later frames; false if it holds an unfinished one."""
        if self._filled or self._receiving:
            return False
        self._drop_buffer()
        return True

    def close(self, reason: str = "") -> None:
        """Close at once. The broker gives a `reason` where it is the one that ends the connection; it is
        logged."""
        if self.closed:
            return
        if self._held:  # earlier requests are still answered
            self.send_held()
            if self.closed:
                return
        self.closed = True
        if reason:
            logger.warning("closed connection from %s (client %r): %s", self.peer, self.client_id, reason)
        self._poller.forget(self)
        if self._writing:
            self.loop.remove_writer(self.fd)
        release(self._out)
        self._out.clear()
        self._drop_buffer()
        pending, self.pending = self.pending, None
        fast_path, self.fast_path = self.fast_path, None
        for each, end in ((pending, "cancel"), (fast_path, "leave")):
            ended = getattr(each, end, None)
            if ended is not None:
                ended()
        # While the receiving thread is at work, the socket's number must not be given to another.
        if not self._receiving:
            self._close_socket()
        if self.session is not None:
            self.session.end()
        self.context.closed(self)

    def _close_socket(self) -> None:
        self.sock.close()
