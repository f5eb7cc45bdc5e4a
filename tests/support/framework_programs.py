"""What a user of each framework writes: an agent with our tools, and a wallet that pays within a cap."""

BEGIN = """
import asyncio, json, os, sys
from sandboxer.sdk import AsyncSandboxer, Sandboxer
from sandboxer.sdk.payers import Cap, EvmPayer

facts = json.loads(os.environ["FACTS"])
cap = Cap(network=facts["network"], asset=facts["asset"], per_payment=2_000_000, in_total=2_000_000)
wallet = EvmPayer(facts["wallet"], [cap])
TASK = "Find out what is sold here, pay for it, and compute 6 * 7 in a sandbox."
os.environ |= {"OPENAI_API_KEY": "of-the-script", "OPENAI_BASE_URL": facts["model"]}
"""
LANGCHAIN = """
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from sandboxer.sdk.adapters.langchain import sandbox_tools

async def main():
    async with AsyncSandboxer(url=facts["url"], wallet=wallet) as client:
        agent = create_agent(ChatOpenAI(model="scripted"), sandbox_tools(client, facts["tools"]))
        done = await agent.ainvoke({"messages": [("user", TASK)]}, {"recursion_limit": 50})
        print(done["messages"][-1].content)

asyncio.run(main())
"""
OPENAI_AGENTS = """
from agents import Agent, Runner, set_tracing_disabled
from sandboxer.sdk.adapters.openai_agents import sandbox_tools

async def main():
    set_tracing_disabled(True)
    async with AsyncSandboxer(url=facts["url"], wallet=wallet) as client:
        agent = Agent(name="worker", model="scripted", tools=sandbox_tools(client, facts["tools"]))
        print((await Runner.run(agent, TASK, max_turns=20)).final_output)

asyncio.run(main())
"""
PYDANTIC_AI = """
from pydantic_ai import Agent
from sandboxer.sdk.adapters.pydantic_ai import sandbox_tools

async def main():
    async with AsyncSandboxer(url=facts["url"], wallet=wallet) as client:
        agent = Agent("openai-chat:scripted", tools=sandbox_tools(client, facts["tools"]))
        print((await agent.run(TASK)).output)

asyncio.run(main())
"""
SMOLAGENTS = """
from smolagents import OpenAIModel, ToolCallingAgent
from sandboxer.sdk.adapters.smolagents import sandbox_tools

with Sandboxer(url=facts["url"], wallet=wallet) as client:
    model = OpenAIModel("scripted", api_base=facts["model"], api_key="of-the-script")
    agent = ToolCallingAgent(tools=sandbox_tools(client, facts["tools"]), model=model, verbosity_level=0)
    print(agent.run(TASK, max_steps=20))
"""
CREWAI = """
os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "HOME": os.getcwd()}
from crewai import LLM, Agent, Crew, Task
from sandboxer.sdk.adapters.crewai import sandbox_tools

with Sandboxer(url=facts["url"], wallet=wallet) as client:
    agent = Agent(
        role="worker", goal="get it done", backstory="none", max_iter=20,
        tools=sandbox_tools(client, facts["tools"]),
        llm=LLM(model="openai/gpt-4o", base_url=facts["model"], api_key="of-the-script"),
    )
    task = Task(description=TASK, expected_output="a word", agent=agent)
    print(Crew(agents=[agent], tasks=[task]).kickoff().raw)
"""
MANIFEST = """
import httpx
from sandboxer.sdk.adapters.manifest import manifest, perform

async def main():
    told = [{"role": "user", "content": TASK + json.dumps(manifest(facts["tools"]))}]
    async with AsyncSandboxer(url=facts["url"], wallet=wallet) as client, httpx.AsyncClient() as http:
        while True:
            answer = await http.post(facts["model"] + "/chat/completions", json={"messages": told})
            said = answer.json()["choices"][0]["message"]["content"]
            if "command" not in said:
                break
            result = await perform(client, said)
            told += [{"role": "assistant", "content": said}, {"role": "user", "content": result.text}]
        print(said)

asyncio.run(main())
"""
