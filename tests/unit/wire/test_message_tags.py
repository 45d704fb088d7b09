"""The tags of messages and commands: they are in every frame and in every entry of the Raft log.

A tag is the class name in lower case unless the class pins another one.  So a class that is renamed
must keep its tag, or nodes of two versions no longer understand each other.
"""

from __future__ import annotations

from typing import get_args

from logboom.wire.commands import AnyCommand
from logboom.wire.messages import AnyMessage

MESSAGES = """
    accessdescribed addnameserver altersubscription appendtimesfound awaitdecided
    balanceplanned challenge checkhalves checkparked clusterdescribed configdescribed
    connectionslisted copiessigned delayedlisted delivered describeaccess describecluster
    describeconfig describegroup describesubscriptions describeversions detach done
    endhalf entriesfetched entriesrestored failure fetchentries finalizeupgrade
    findappendtimes findkey findkeyresult groupassigned groupcommit groupcommitted
    groupdescribed groupheartbeat groupjoin groupjoined groupleave grouprelease
    groupslisted groupssurveyed groupstatus groupstatustold halfended halvestocheck
    heartbeat heartbeatgranted hello kickconnection listconnections listdelayed
    listgroups listunended makeretrytopics needhello offsetfortime offsetfortimeresult offsets
    offsetsresult parkedchecked ping planbalance pong produce produced propose proposed
    prove pull pulled queuessurveyed raftframe readstate recall recalled receive
    removenameserver replicate replicated reportload restoreentries settled
    settlemessages signcopies stateread stats statsresult subscribe subscribed
    subscriptionsdescribed surveygroups surveyqueues throttled unendedlisted
    versionsdescribed watch watchresult welcome
"""
COMMANDS = """
    addrule adduserkey admitinitialusers allocateproducerids altergroup alterisr
    altersettings altertopic alteruser barrier cancelreassign commitoffsets createrole
    createtopic createuser decide deletegroup deleterole deletetopic deleteuser discardlosttopic
    electleader endfilling enduserkeys expiremembers fencebroker finishrestore joingroup leavegroup
    newterm opentransaction raisefeatures reassign registerbroker releasequeues removebroker
    removerule removeuserkey reportdamage reportdecided reportlosses reportroom reporttails resetoffsets
    restorecounters restoredecisions restoregroup restoretopic setbrokermode setdefaultquota
    setstart settarget stepdown
"""


def tags(union: object) -> list[str]:
    """Return the tags of a union's classes, sorted."""
    return sorted(each.__struct_config__.tag for each in get_args(union))


def test_no_message_changes_its_tag() -> None:
    assert tags(AnyMessage) == MESSAGES.split()


def test_no_command_changes_its_tag() -> None:
    assert tags(AnyCommand) == COMMANDS.split()
