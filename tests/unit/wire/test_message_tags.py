"""The tags of messages and commands: they are in every frame and in every entry of the Raft log.

A tag is the class name in lower case unless the class pins another one.  So a class that is renamed
must keep its tag, or nodes of two versions no longer understand each other.
"""

from __future__ import annotations

from typing import get_args

from logboom.wire.commands import AnyCommand
from logboom.wire.messages import AnyMessage

MESSAGES = """
    addnameserver altersubscription awaitdecided challenge checkhalves checkparked delivered
    describegroup describesubscriptions detach done endhalf failure findkey findkeyresult
    groupassigned groupcommit groupcommitted groupdescribed groupheartbeat groupjoin groupjoined
    groupleave grouprelease groupslisted groupstatus groupstatustold halfended halvestocheck
    heartbeat heartbeatgranted hello listgroups listunended needhello offsetfortime
    offsetfortimeresult offsets offsetsresult parkedchecked ping pong produce produced propose
    proposed prove pull pulled raftframe recall recalled receive removenameserver replicate
    replicated settled settlemessages stats statsresult subscribe subscribed
    subscriptionsdescribed unendedlisted watch watchresult welcome
"""
COMMANDS = """
    allocateproducerids altergroup alterisr altertopic barrier commitoffsets createtopic decide
    deletegroup deletetopic electleader expiremembers fencebroker joingroup leavegroup newterm
    opentransaction registerbroker releasequeues removebroker reportdamage reportdecided
    reportroom reporttails resetoffsets setstart settarget stepdown
"""


def tags(union: object) -> list[str]:
    """Return the tags of a union's classes, sorted."""
    return sorted(each.__struct_config__.tag for each in get_args(union))


def test_no_message_changes_its_tag() -> None:
    assert tags(AnyMessage) == MESSAGES.split()


def test_no_command_changes_its_tag() -> None:
    assert tags(AnyCommand) == COMMANDS.split()
